"""Numbers on a device that the host reads without waiting. Needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


class DeferredScalars:
    """Scalars by name on their way to the host.

    On a CPU they are read at once. On CUDA `tolist` would wait for all queued work. So the stream
    copies them to pinned memory as one vector, and an event shows when it has arrived.
    """

    def __init__(self, scalars: Mapping[str, torch.Tensor | float]) -> None:
        tensors = {k: v.detach() for k, v in scalars.items() if isinstance(v, torch.Tensor)}
        self._plain = {k: v for k, v in scalars.items() if not isinstance(v, torch.Tensor)}
        self._names = list(tensors)
        self._values: list[float] = []
        self._event: Any = None
        if not tensors:
            return
        on_device = (value.device for value in tensors.values() if value.is_cuda)
        device = next(on_device, torch.device("cpu"))
        # float32 is inexact for counts above 2**24; the stack uses the widest dtype for all.
        wide = (v if v.is_floating_point() else v.double() for v in tensors.values())
        vector = torch.stack([v.to(device, non_blocking=True).reshape(()) for v in wide])
        if not vector.is_cuda:
            self._values = vector.tolist()
            return
        self._host = torch.empty(len(vector), dtype=vector.dtype, pin_memory=True)
        self._host.copy_(vector, non_blocking=True)
        self._event = torch.cuda.Event()
        self._event.record(torch.cuda.current_stream(vector.device))

    def is_ready(self) -> bool:
        """Return whether the numbers have arrived."""
        return self._event is None or bool(self._event.query())

    def wait(self) -> None:
        """Wait until the numbers have arrived."""
        if self._event is not None:
            self._event.synchronize()

    def read(self) -> dict[str, float]:
        """Return the scalars. Call it when ready."""
        values = self._values if self._event is None else self._host.tolist()
        return self._plain | dict(zip(self._names, values, strict=True))
