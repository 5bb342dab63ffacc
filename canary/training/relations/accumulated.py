"""Gradients between the micro-batches of the first update: nothing may change them there."""

from __future__ import annotations

import math
import weakref

import torch
from torch import nn

from canary.relations.relation import Changed

TENSORS = 8
"""Of a model that are followed, evenly spread."""
APART = 1e-4
"""Relative; more than rounding of a norm."""


class Accumulated:
    """Compares norms at the end of each backward pass with those at the next forward pass."""

    def __init__(self) -> None:
        self.changed: Changed | None = None
        """The first gradient that was changed, but not set to zero."""
        self._model: weakref.ref[nn.Module] | None = None
        self._norms: dict[str, float] = {}
        self._passes = 0
        self._queued = False

    def backward(self, model: nn.Module) -> None:
        """Take part in a backward pass that reached what the model said."""
        if not self._queued:
            self._queued, self._model = True, weakref.ref(model)
            engine = torch.autograd.Variable._execution_engine  # type: ignore[attr-defined]
            engine.queue_callback(self._ends)

    def _ends(self) -> None:
        self._queued = False
        self._passes += 1
        self._norms = self._now()

    def forward(self) -> None:
        """Compare: a call begins that may be that of the next micro-batch."""
        if self._queued or not self._norms or self.changed is not None:
            return
        now = self._now()
        for name, was in self._norms.items():
            found = now.get(name, 0.0)
            apart = abs(found - was) > APART * was
            if found and was and math.isfinite(was) and apart:
                self.changed = Changed(name, self._passes - 1, was, found)
                break
        self._norms = {}

    def _now(self) -> dict[str, float]:
        model = None if self._model is None else self._model()
        if model is None:
            return {}
        held = [(name, one.grad) for name, one in model.named_parameters() if one.grad is not None]
        step = max(1, len(held) // TENSORS)
        return {
            name: float(one.detach().float().norm())
            for name, one in held[::step][:TENSORS]
            if one.layout == torch.strided
        }
