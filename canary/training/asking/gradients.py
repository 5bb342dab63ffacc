"""Gradients between the micro-batches of the first updates: nothing may change them there."""

from __future__ import annotations

import math
import weakref
from typing import Any, NamedTuple

import torch
from torch import nn

from canary.training.collectors.uncounted import uncounted

TENSORS = 8
"""Of a model that are followed, evenly spread."""
APART = 1e-4
"""Relative; more than rounding of a norm."""
UPDATES = 2
"""That are followed: a first pass may be a dry run."""


class _Pass(NamedTuple):
    """What the model holds: norms of gradients, and how often parameters were changed."""

    model: nn.Module | None
    rows: Any
    norms: dict[str, float]
    versions: list[int]


class Accumulated:
    """Compares norms at the end of each backward pass with those at the next forward pass."""

    def __init__(self) -> None:
        self.changed: tuple[str, str] | None = None
        """In words, the first gradient that was changed, but not set to zero; and its name."""
        self.updates = self.lost = 0
        """Updates, and those of which only the last micro-batch has gradients left."""
        self._model: weakref.ref[nn.Module] | None = None
        self._rows: Any = None
        self._passes = 0
        self._queued = self._compares = self._is_lost = False
        self._last: _Pass | None = None
        """What the last backward pass of this update left."""

    def backward(self, model: nn.Module, rows: Any, _: torch.Tensor) -> None:
        """Take part in a backward pass that reached what the model said of these rows."""
        if self.updates >= UPDATES or self._queued:
            return
        self._queued, self._model, self._rows = True, weakref.ref(model), rows
        now, last = self._now(), self._last
        # The same rows again, or moved parameters, are of an optimizer that tries a step.
        if last is not None and last.model is model and last.rows != rows:
            is_empty = any(last.norms.values()) and not any(now.norms.values())
            self._is_lost |= is_empty and now.versions == last.versions
        engine = torch.autograd.Variable._execution_engine  # type: ignore[attr-defined]
        engine.queue_callback(self._ends)

    def _ends(self) -> None:
        self._queued, self._compares = False, True
        self._passes += 1
        with uncounted():
            self._last = self._now()

    def update_begins(self) -> None:
        """The optimizer begins. Gradients that it gets from elsewhere were lost on purpose."""
        if self._last is not None and self._is_lost and self.updates < UPDATES:
            now = self._now().norms
            ratios = [now.get(name, 0.0) / was for name, was in self._last.norms.items() if was]
            # They may be clipped.
            self.lost += bool(ratios) and max(ratios) - min(ratios) <= APART * max(ratios)
        self.updates += 1
        self._last, self._is_lost = None, False

    def forward(self) -> None:
        """Compare: a call begins that may be that of the next micro-batch."""
        if self._queued or not self._compares or self._last is None or self.updates:
            return
        self._compares, now = False, self._now().norms
        for name, was in self._last.norms.items():
            found = now.get(name, 0.0)
            if found and math.isfinite(was) and abs(found - was) > APART * was > 0:
                words = f"after micro-batch {self._passes - 1} the accumulated gradient has the "
                words += f"norm {was:.4g}, and before the next one {found:.4g}"
                self.changed = self.changed or (words, name)

    def _now(self) -> _Pass:
        model = None if self._model is None else self._model()
        named = [] if model is None else [*model.named_parameters()]
        held = [(name, one.grad) for name, one in named if one.grad is not None]
        norms = {
            name: float(torch.linalg.vector_norm(one.detach(), dtype=torch.float32))
            for name, one in held[:: max(1, len(held) // TENSORS)][:TENSORS]
            if one.layout == torch.strided
        }
        versions = [one._version for _, one in named[:: max(1, len(named) // TENSORS)]]
        return _Pass(model, self._rows, norms, versions)
