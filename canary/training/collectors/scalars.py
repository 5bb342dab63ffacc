"""Numbers that stay on the device until the host can have them without waiting. Needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


class DeferredVector:
    """A vector on its way to the host.

    On a CPU it is read at once. On CUDA `tolist` would wait for all the work queued so far: the
    vector is copied to pinned memory in the stream's own order, and is there once an event behind
    the copy has passed.
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
        """Whether reading waits for nothing."""
        return self._event is None or bool(self._event.query())

    def wait(self) -> None:
        """Until it is ready."""
        if self._event is not None:
            self._event.synchronize()

    def read(self) -> list[float]:
        """The numbers; to be asked when ready."""
        return self._values if self._event is None else list(self._host.tolist())


class DeferredScalars:
    """Scalars by name on their way to the host: the tensors among them are one `DeferredVector`."""

    def __init__(self, scalars: Mapping[str, torch.Tensor | float]) -> None:
        tensors = {k: v.detach() for k, v in scalars.items() if isinstance(v, torch.Tensor)}
        self._plain = {k: v for k, v in scalars.items() if not isinstance(v, torch.Tensor)}
        self._names = list(tensors)
        self._vector: DeferredVector | None = None
        if tensors:
            on_device = (value.device for value in tensors.values() if value.is_cuda)
            device = next(on_device, torch.device("cpu"))
            # float32 holds no count above 2**24; the stack takes the widest dtype for all.
            wide = (v if v.is_floating_point() else v.double() for v in tensors.values())
            parts = [value.to(device, non_blocking=True).reshape(()) for value in wide]
            self._vector = DeferredVector(torch.stack(parts))

    def is_ready(self) -> bool:
        """Whether reading waits for nothing."""
        return self._vector is None or self._vector.is_ready()

    def wait(self) -> None:
        """Until it is ready."""
        if self._vector is not None:
            self._vector.wait()

    def read(self) -> dict[str, float]:
        """The scalars; to be asked when ready."""
        values = [] if self._vector is None else self._vector.read()
        return self._plain | dict(zip(self._names, values, strict=True))
