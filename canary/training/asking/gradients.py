"""Gradients between the micro-batches of the first update: nothing may change them there."""

from __future__ import annotations

import math
import weakref

import torch
from torch import nn

from canary.training.collectors.uncounted import uncounted

TENSORS = 8
"""Of a model that are followed, evenly spread."""
APART = 1e-4
"""Relative; more than rounding of a norm."""


class Accumulated:
    """Compares norms at the end of each backward pass with those at the next forward pass."""

    def __init__(self) -> None:
        self.changed: tuple[str, str] | None = None
        """In words, the first gradient that was changed, but not set to zero; and its name."""
        self._model: weakref.ref[nn.Module] | None = None
        self._passes = 0
        self._queued = self._is_over = False
        self._last: dict[str, float] = {}

    def backward(self, model: nn.Module, _: torch.Tensor) -> None:
        """Take part in a backward pass that reached what the model said."""
        if not (self._queued or self._is_over):
            self._queued, self._model = True, weakref.ref(model)
            engine = torch.autograd.Variable._execution_engine  # type: ignore[attr-defined]
            engine.queue_callback(self._ends)

    def _ends(self) -> None:
        self._queued = False
        self._passes += 1
        with uncounted():
            self._last = self._norms()

    def update_begins(self) -> None:
        """The optimizer begins."""
        self._is_over = True

    def forward(self) -> None:
        """Compare: a call begins that may be that of the next micro-batch."""
        if self._queued or self._is_over or not self._last:
            return
        now, last, self._last = self._norms(), self._last, {}
        for name, was in last.items():
            found = now.get(name, 0.0)
            if found and math.isfinite(was) and abs(found - was) > APART * was > 0:
                words = f"after micro-batch {self._passes - 1} the accumulated gradient has the "
                words += f"norm {was:.4g}, and before the next one {found:.4g}"
                self.changed = self.changed or (words, name)

    def _norms(self) -> dict[str, float]:
        model = None if self._model is None else self._model()
        named = () if model is None else model.named_parameters()
        held = [(name, one.grad) for name, one in named if one.grad is not None]
        return {
            name: float(torch.linalg.vector_norm(one.detach(), dtype=torch.float32))
            for name, one in held[:: max(1, len(held) // TENSORS)][:TENSORS]
            if one.layout == torch.strided
        }
