"""Read the gradients in a look after backward and at the optimizer. The difference between the two
is clipping, however a loop does it."""

from __future__ import annotations

from typing import Any

import torch

from canary.record.exact import Clipping
from canary.training.collectors.uncounted import uncounted
from canary.training.collectors.wrapping import Wrapping
from canary.training.exact.parameters import gradient_norms
from canary.training.exact.signals import ExactSignals


class Gradients:
    """Read the norms of each step: None without a backward or an optimizer."""

    def __init__(self, model: Any, exact: ExactSignals) -> None:
        self._model = model
        self._exact = exact
        self._steps: Clipping = {"before": [], "applied": []}
        exact.found["clipping"] = self._steps
        self._before: float | None = None
        self._applied: float | None = None
        self._inside = self._seen = False
        self._wrapping = Wrapping()

    def begin(self) -> None:
        """Read the gradients after each backward of this process from now on."""
        # `Tensor.backward` calls this function too.
        self._wrapping.wrap(torch.autograd, "backward", self._around_backward)

    def end(self) -> None:
        """Restore backward."""
        self._wrapping.undo()

    def _around_backward(self, original: Any, *args: Any, **kwargs: Any) -> None:
        # Activation checkpointing calls backward inside a backward.
        if self._inside:
            original(*args, **kwargs)
            return
        self._inside = True
        try:
            original(*args, **kwargs)
        finally:
            self._inside = False
        self._seen = True
        if self._applied is None:
            self._exact.contain(self._grew)

    def phase_ended(self) -> None:
        """End a backward phase that did not call torch's backward."""
        if not self._seen and self._applied is None:
            self._exact.contain(self._grew)

    def backward_ended(self, scale: float = 1.0) -> None:
        """Read the gradients after a backward that the caller saw. `scale`: a gradient scaler
        multiplied them by it."""
        if self._applied is None:
            self._exact.contain(lambda: self._grew(scale))

    def drop_attempt(self) -> None:
        """Forget the gradients of a step that a gradient scaler skipped."""
        self._before = self._applied = None

    def _grew(self, scale: float = 1.0) -> None:
        first = not self._steps["before"]
        if first:
            self._exact.gradients_ready(again=True)
            found = self._exact.found["first_gradient"]
            if scale != 1.0:
                found["total"] /= scale
                found["groups"] = {name: norm / scale for name, norm in found["groups"].items()}
            self._before = found["total"]
        else:
            self._before = self._norm() / scale

    def optimizer_begins(self) -> float | None:
        """Return the norm that the first optimizer of this step gets; None if it cannot be read."""
        if self._before is None and not self._steps["before"]:
            self._exact.gradients_ready()
        if self._applied is None:
            self._applied = self._exact.contain(self._norm)
        return self._applied

    def step_ended(self) -> None:
        """Store the norms of this step; the next gradients belong to another step."""
        self._steps["before"].append(self._before)
        self._steps["applied"].append(self._applied)
        self._before = self._applied = None

    def _norm(self) -> float:
        with uncounted():
            return gradient_norms(self._model)["total"]
