"""Trainable tensors that training does not change, and the gradient norm, left on its device.

Never waits for the device. Needs torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from canary.training.collectors.scalars import DeferredVector
from canary.training.exact.parameters import local

UPDATES = 20
"""Updates after which a tensor counts as unchanged: half of an adapter begins one step late."""
LEAST_RATE = 1e-7
"""A smaller learning rate may change nothing that float32 can hold."""
OF_PEAK = 0.1
"""Updates below this share of the peak rate do not count: warm-up may change little."""
CHUNK = 1 << 16
"""Elements weighted at once on a CPU; they fit its cache."""
DEVICE_CHUNK = 1 << 20
"""Elements weighted at once on a device, where each chunk costs kernel launches: 8 MB of memory."""
STRIDE = 40503
"""Odd, so that its multiples differ for all of the first 2**n positions."""


class ParameterChanges:
    """Compares a weighted sum of each trainable tensor, in float64, at the first step and `UPDATES`
    later. Elements have different weights, so that opposite changes do not cancel.

    Cost: two passes over the parameters per training, two kernels per chunk of a tensor.
    """

    def __init__(self) -> None:
        self._named: list[tuple[str, torch.Tensor]] = []
        self._first: torch.Tensor | None = None
        self._reading: DeferredVector | None = None
        self._updates = 0
        self._done = False

    def step_ended(self, model: Any, rate: float | None, peak: float | None) -> None:
        """Count an update. Call it once per step, always at the same point of the step."""
        if self._done:
            return
        if self._first is None:
            self._begin(model)
            return
        if rate is None or rate >= max(LEAST_RATE, OF_PEAK * (peak or 0.0)):
            self._updates += 1
        if self._updates >= UPDATES and self._reading is None:
            same = torch.eq(self._sums(), self._first)
            self._reading = DeferredVector(same)

    def tensors(self) -> list[torch.Tensor]:
        """Return the tensors that this object made and keeps."""
        return [] if self._first is None else [self._first]

    def _begin(self, model: Any) -> None:
        # A rank of a sharded model may hold no part of a tensor.
        self._named = [
            (name, value)
            for name, value in model.named_parameters()
            if value.requires_grad and local(value).numel()
        ]
        if not self._named:
            self._done = True
            return
        self._first = self._sums()

    def _sums(self) -> torch.Tensor:
        with torch.no_grad():
            shards = [local(value) for _, value in self._named]
            device = shards[0].device
            weights: dict[torch.device, torch.Tensor] = {}
            for value in shards:
                if value.device not in weights:
                    at = value.device
                    weights[at] = _weights(at, max(v.numel() for v in shards if v.device == at))
            return torch.stack([_weighted(v, weights[v.device]).to(device) for v in shards])

    def never_changed(self) -> tuple[tuple[str, ...], int]:
        """Return the unchanged tensors and the number of updates, once; until then `(), 0`."""
        if self._reading is None or not self._reading.is_ready():
            return (), 0
        same = zip(self._named, self._reading.read(), strict=True)
        names = tuple(name for (name, _), equal in same if equal)
        self._done = True
        self._named, self._first, self._reading = [], None, None
        return names, self._updates


def _weights(device: torch.device, elements: int) -> torch.Tensor:
    """Return different weights in [1, 2), for `elements` or for one chunk."""
    chunk = CHUNK if device.type in ("cpu", "mps") else DEVICE_CHUNK
    count = 1 << (min(chunk, elements) - 1).bit_length()
    wide = torch.float32 if device.type == "mps" else torch.float64
    return 1 + (torch.arange(count, device=device) * STRIDE % count).to(wide) / count


def _weighted(value: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return the sum of weighted elements; each chunk is also weighted by its position."""
    chunks = value.detach().reshape(-1).split(len(weights))
    sums = torch.stack([(chunk * weights[: len(chunk)]).sum() for chunk in chunks])
    return (sums * torch.arange(1, len(sums) + 1, device=sums.device)).sum()


def gradient_norm(parameters: Iterable[torch.Tensor]) -> torch.Tensor | None:
    """Return the L2 norm of all gradients, a 0-d tensor on the first one's device; None without.

    For a sharded model it is the norm of this rank's shards: use the trainer's norm instead.
    """
    gradients = [local(p.grad) for p in parameters if p.grad is not None]
    if not gradients:
        return None
    with torch.no_grad():
        dense = [g.coalesce().values() if g.is_sparse else g for g in gradients]
        norms = torch._foreach_norm(dense)
        device = norms[0].device
        if len({norm.device for norm in norms}) > 1:
            norms = [norm.to(device, non_blocking=True) for norm in norms]
        return torch.linalg.vector_norm(torch.stack(norms).float())
