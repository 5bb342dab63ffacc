"""Scalars that stay on the device until the host can have them without waiting."""

from __future__ import annotations

import torch


class DeferredScalars:
    """Copies a handful of 0-d tensors to pinned memory in the stream's own order.

    On CPU the values are read at once. On CUDA reading them with `.item()` would wait for all the
    work queued so far; the copy is queued instead, and is there once an event recorded after it is.
    """

    def __init__(self, values: dict[str, torch.Tensor | float | int]) -> None:
        self._plain = {k: v for k, v in values.items() if not isinstance(v, torch.Tensor)}
        tensors = {k: v.detach() for k, v in values.items() if isinstance(v, torch.Tensor)}
        self._names = list(tensors)
        self._host: torch.Tensor | None = None
        if any(value.is_cuda for value in tensors.values()):
            device = next(value.device for value in tensors.values() if value.is_cuda)
            stacked = torch.stack(
                [
                    v.to(device, torch.float64, non_blocking=True).reshape(())
                    for v in tensors.values()
                ]
            )
            self._host = torch.empty(len(tensors), dtype=torch.float64, pin_memory=True)
            self._host.copy_(stacked, non_blocking=True)
        else:
            self._plain.update({name: value.item() for name, value in tensors.items()})

    def read(self) -> dict[str, float]:
        """The values. On CUDA, only after a later event of the same stream is past."""
        values = dict(self._plain)
        if self._host is not None:
            values.update(zip(self._names, self._host.tolist(), strict=True))
        return values
