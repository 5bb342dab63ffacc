"""Gradients between the micro-batches of the first updates: nothing may change them there."""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from canary.relations.relation import Changed

TENSORS = 8
"""Of a model that are followed, evenly spread."""
APART = 1e-4
"""Relative; more than rounding of a norm."""
UPDATES = 2
"""That are followed: a first pass may be a dry run."""


@dataclass(frozen=True)
class _Pass:
    """What a backward pass left."""

    norms: dict[str, float]
    versions: list[int]
    """How often each parameter was changed."""
    rows: Any
    model: nn.Module | None


class Accumulated:
    """Compares norms at the end of each backward pass with those at the next forward pass."""

    def __init__(self) -> None:
        self.changed: Changed | None = None
        """The first gradient that was changed, but not set to zero."""
        self._model: weakref.ref[nn.Module] | None = None
        self._norms: dict[str, float] = {}
        self._passes = 0
        self._queued = False
        self.updates = 0
        self.lost = 0
        """Updates of which only the last micro-batch has gradients left."""
        self._last: _Pass | None = None
        """The last backward pass of this update."""
        self._is_lost = False
        self._rows: Any = None

    @property
    def is_open(self) -> bool:
        """Whether it follows more updates."""
        return self.updates < UPDATES

    def backward(self, model: nn.Module, rows: Any = None) -> None:
        """Take part in a backward pass that reached what the model said of these rows."""
        if not self._queued:
            self._queued, self._model, self._rows = True, weakref.ref(model), rows
            self._is_lost |= self._was_emptied(model)
            engine = torch.autograd.Variable._execution_engine  # type: ignore[attr-defined]
            engine.queue_callback(self._ends)

    def _ends(self) -> None:
        self._queued = False
        self._passes += 1
        self._norms = self._now()
        model = None if self._model is None else self._model()
        self._last = _Pass(self._norms, self._versions(), self._rows, model)

    def _was_emptied(self, model: nn.Module) -> bool:
        """Whether the gradients of the pass before are gone, and its rows are not those of now. A
        parameter that has changed may be one that an optimizer moved for a while."""
        last = self._last
        if last is None or last.model is not model or self._rows == last.rows:
            return False
        if not any(last.norms.values()):
            return False
        return not any(self._now().values()) and self._versions() == last.versions

    def update_begins(self) -> None:
        """The optimizer begins. Gradients that it gets from elsewhere were lost on purpose."""
        last, now = self._last, self._now()
        if last is not None and self._is_lost and _are_scaled(last.norms, now):
            self.lost += 1
        self.updates += 1
        self._last, self._is_lost = None, False

    def forward(self) -> None:
        """Compare: a call begins that may be that of the next micro-batch."""
        if self._queued or not self._norms or self.changed is not None or self.updates:
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

    def _versions(self) -> list[int]:
        model = None if self._model is None else self._model()
        parameters = [] if model is None else [*model.parameters()]
        return [one._version for one in parameters[:: max(1, len(parameters) // TENSORS)]]


def _are_scaled(before: dict[str, float], now: dict[str, float]) -> bool:
    """Whether all norms are as before, or changed by one factor, as by clipping."""
    ratios = [now.get(name, 0.0) / was for name, was in before.items() if was]
    return bool(ratios) and max(ratios) - min(ratios) <= APART * max(ratios)
