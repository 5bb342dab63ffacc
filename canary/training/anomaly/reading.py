"""Numbers that lie on a device, brought to the host without waiting for it. Needs torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch


def local(value: torch.Tensor) -> torch.Tensor:
    """The part of a tensor that this rank holds: of a sharded one its shard."""
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        return value
    return value.to_local() if hasattr(value, "to_local") else value


def gradient_norm(parameters: Iterable[torch.Tensor]) -> torch.Tensor | None:
    """L2 norm of all gradients, as a 0-d tensor on the device of the first; None without any.

    Of a sharded model that of this rank's shards: hand over the trainer's own there.
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


class Reading:
    """Scalars by name, and one vector, on their way to the host.

    On CUDA they are copied to pinned memory in the stream's own order and are there once an event
    behind them has passed. All of them together are one copy; nothing is read one by one.
    """

    def __init__(
        self, scalars: Mapping[str, torch.Tensor | float], vector: torch.Tensor | None = None
    ) -> None:
        self._plain: dict[str, float] = {}
        self._names: list[str] = []
        self._values: torch.Tensor | None = None
        self._event: Any = None
        parts: list[torch.Tensor] = []
        for name, value in scalars.items():
            if isinstance(value, torch.Tensor):
                self._names.append(name)
                parts.append(value)
            else:
                self._plain[name] = value
        with torch.no_grad():
            if parts:
                self._begin(parts, vector)
            elif vector is not None:
                self._copy(vector.double())

    def _begin(self, parts: list[torch.Tensor], vector: torch.Tensor | None) -> None:
        device = next((part.device for part in parts if part.device.type != "cpu"), None)
        if device is not None:
            parts = [part.to(device, non_blocking=True) for part in parts]
        joined = torch.stack(parts)
        self._copy(joined if vector is None else torch.cat([joined, vector]))

    def _copy(self, joined: torch.Tensor) -> None:
        if not joined.is_cuda:
            self._values = joined
            return
        self._values = torch.empty(len(joined), dtype=joined.dtype, pin_memory=True)
        self._values.copy_(joined, non_blocking=True)
        self._event = torch.cuda.Event()
        self._event.record(torch.cuda.current_stream(joined.device))

    def is_ready(self) -> bool:
        """Whether reading waits for nothing."""
        return self._event is None or bool(self._event.query())

    def wait(self) -> None:
        """Until it is ready."""
        if self._event is not None:
            self._event.synchronize()

    def scalars(self) -> dict[str, float]:
        """The scalars; to be asked when ready."""
        if self._values is None:
            return self._plain
        return self._plain | dict(zip(self._names, self._values.tolist(), strict=False))

    def vector(self) -> list[float]:
        """The vector; to be asked when ready."""
        if self._values is None:
            return []
        found: list[float] = self._values.tolist()[len(self._names) :]
        return found
