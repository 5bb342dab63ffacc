"""Which trainable tensors have not changed since training began, asked a few times and not waited
for. Needs torch."""

from __future__ import annotations

from typing import Any

import torch

from canary.anomaly.reading import Reading, local

UPDATES = 20
"""Updates after which a tensor that is what it was stands still: an adapter's first half waits one
step for its second."""
LEAST_RATE = 1e-7
"""A smaller rate may change nothing that float32 can hold."""
OF_PEAK = 0.1
"""The first steps of a warm-up are none that must change everything."""


class ParameterWatch:
    """Compares sums of each trainable tensor, in float64, at the first step and `UPDATES` later.

    Two sweeps over the parameters in a whole training, of one kernel a tensor.
    """

    def __init__(self) -> None:
        self._named: list[tuple[str, torch.Tensor]] = []
        self._first: torch.Tensor | None = None
        self._reading: Reading | None = None
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
            self._reading = Reading({}, same)

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
        device = local(self._named[0][1]).device
        wide = torch.float32 if device.type == "mps" else torch.float64
        with torch.no_grad():
            sums = [local(value).sum(dtype=wide).to(device) for _, value in self._named]
            return torch.stack(sums)

    def never_changed(self) -> tuple[tuple[str, ...], int]:
        """Names, and the updates they were given; once, when the answer has come."""
        if self._reading is None or not self._reading.is_ready():
            return (), 0
        same = self._reading.vector()
        names = tuple(
            name for (name, _), equal in zip(self._named, same, strict=True) if equal == 1.0
        )
        self._over = True
        self._named, self._first, self._reading = [], None, None
        return names, self._updates
