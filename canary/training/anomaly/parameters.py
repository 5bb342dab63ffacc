"""Which trainable tensors have not changed since training began, asked a few times and not waited
for. Needs torch."""

from __future__ import annotations

from typing import Any

import torch

from canary.training.collectors.scalars import DeferredVector
from canary.training.exact.parameters import local

UPDATES = 20
"""Updates after which a tensor that is what it was stands still: an adapter's first half waits one
step for its second."""
LEAST_RATE = 1e-7
"""A smaller rate may change nothing that float32 can hold."""
OF_PEAK = 0.1
"""The first steps of a warm-up are none that must change everything."""
CHUNK = 1 << 16
"""Elements that are weighted at once on a CPU, whose cache holds them."""
DEVICE_CHUNK = 1 << 20
"""The same on a device, where each chunk costs a launch: 8 MB of working memory."""
STRIDE = 40503
"""Odd: its multiples give each of the first 2**n places a value of its own."""


class ParameterChanges:
    """Compares a weighted sum of each trainable tensor, in float64, at the first step and `UPDATES`
    later. Elements that move oppositely do not cancel: each has a weight of its own.

    Two sweeps over the parameters in a whole training, of two kernels a chunk of a tensor.
    """

    def __init__(self) -> None:
        self._named: list[tuple[str, torch.Tensor]] = []
        self._first: torch.Tensor | None = None
        self._reading: DeferredVector | None = None
        self._updates = 0
        self._over = False

    def step_ended(self, model: Any, rate: float | None, peak: float | None) -> None:
        """To be called once a step, at the same place in it."""
        if self._over:
            return
        if self._first is None:
            self._begin(model)
            return
        if rate is None or rate >= max(LEAST_RATE, OF_PEAK * (peak or 0.0)):
            self._updates += 1
        if self._updates >= UPDATES and self._reading is None:
            same = torch.eq(self._sums(), self._first)
            self._reading = DeferredVector(same)

    def _begin(self, model: Any) -> None:
        # Of a sharded model some ranks hold nothing of a tensor; of a gathered one nobody does.
        self._named = [
            (name, value)
            for name, value in model.named_parameters()
            if value.requires_grad and local(value).numel()
        ]
        if not self._named:
            self._over = True
            return
        self._first = self._sums()

    def _sums(self) -> torch.Tensor:
        with torch.no_grad():
            held = [local(value) for _, value in self._named]
            device = held[0].device
            weights: dict[torch.device, torch.Tensor] = {}
            for value in held:
                if value.device not in weights:
                    at = value.device
                    weights[at] = _weights(at, max(v.numel() for v in held if v.device == at))
            return torch.stack([_weighted(v, weights[v.device]).to(device) for v in held])

    def never_changed(self) -> tuple[tuple[str, ...], int]:
        """Names, and the updates they were given; once, when the answer has come."""
        if self._reading is None or not self._reading.is_ready():
            return (), 0
        same = zip(self._named, self._reading.read(), strict=True)
        names = tuple(name for (name, _), equal in same if equal)
        self._over = True
        self._named, self._first, self._reading = [], None, None
        return names, self._updates


def _weights(device: torch.device, elements: int) -> torch.Tensor:
    """Different numbers in [1, 2), as many as `elements`, or as a chunk has."""
    chunk = CHUNK if device.type in ("cpu", "mps") else DEVICE_CHUNK
    count = 1 << (min(chunk, elements) - 1).bit_length()
    wide = torch.float32 if device.type == "mps" else torch.float64
    return 1 + (torch.arange(count, device=device) * STRIDE % count).to(wide) / count


def _weighted(value: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The sum of all elements by their weights, and of all chunks by their places."""
    chunks = value.detach().reshape(-1).split(len(weights))
    sums = torch.stack([(chunk * weights[: len(chunk)]).sum() for chunk in chunks])
    return (sums * torch.arange(1, len(sums) + 1, device=sums.device)).sum()
