"""Numbers on a device that the host reads without waiting. Needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


class DeferredVector:
    """A vector on its way to the host.

    On a CPU it is read at once. On CUDA `tolist` would wait for all queued work. So the stream
    copies the vector to pinned memory, and an event after the copy shows when it has arrived.
    """

    def __init__(self, vector: torch.Tensor) -> None:
        self._event: Any = None
        self._values: list[float] = []
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

    def read(self) -> list[float]:
        """Return the numbers. Call it when ready."""
        return self._values if self._event is None else list(self._host.tolist())


class DeferredScalars:
    """Scalars by name on their way to the host; tensors share one `DeferredVector`."""

    def __init__(self, scalars: Mapping[str, torch.Tensor | float]) -> None:
        tensors = {k: v.detach() for k, v in scalars.items() if isinstance(v, torch.Tensor)}
        self._plain = {k: v for k, v in scalars.items() if not isinstance(v, torch.Tensor)}
        self._names = list(tensors)
        self._vector: DeferredVector | None = None
        if tensors:
            on_device = (value.device for value in tensors.values() if value.is_cuda)
            device = next(on_device, torch.device("cpu"))
            # float32 is inexact for counts above 2**24; the stack uses the widest dtype for all.
            wide = (v if v.is_floating_point() else v.double() for v in tensors.values())
            parts = [value.to(device, non_blocking=True).reshape(()) for value in wide]
            self._vector = DeferredVector(torch.stack(parts))

    def is_ready(self) -> bool:
        """Return whether the numbers have arrived."""
        return self._vector is None or self._vector.is_ready()

    def wait(self) -> None:
        """Wait until the numbers have arrived."""
        if self._vector is not None:
            self._vector.wait()

    def read(self) -> dict[str, float]:
        """Return the scalars. Call it when ready."""
        values = [] if self._vector is None else self._vector.read()
        return self._plain | dict(zip(self._names, values, strict=True))
