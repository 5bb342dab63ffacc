"""A trainer's own training loop that calls nothing back: its updates tell of its steps.

Torch tells of the step of every optimizer. Where no callback says more, a step is over with the
batch that enters after an update, with the next update, or with the training.
"""

from __future__ import annotations

from typing import Any


class SilentLoop:
    """Which events of a training are told by callbacks, and which by torch alone."""

    def __init__(self, model_hooked: bool) -> None:
        self._model_hooked = model_hooked
        self.methods_used = False
        """Whether it has called `compute_loss` or `training_step`."""
        self.updates_told = False
        """Whether the loop calls back before its updates."""
        self.ends_told = False
        """Whether it calls back at a step's beginning or end."""
        self.seen: set[str] = set()
        """Whether its steps `passed` batches, and had `batches` of tensors,
        `tokens`, `losses`, `samples`."""
        self._updates = 0
        self._updated = False

    def update_begins(self) -> bool:
        """An optimizer is about to step; whether that is news."""
        return not self.updates_told

    def update_ended(self) -> bool:
        """It has; whether that is news."""
        self._updates += 1
        self._updated = True
        return not self.updates_told

    def step_is_over(self) -> bool:
        """Whether a step ended unsaid since the last call."""
        over, self._updated = self._updated and not self.ends_told, False
        return over

    def unmeasured(self, trainer: Any) -> dict[str, str]:
        """What its steps did not show, and why."""
        name = type(trainer).__name__
        loop = f"the training loop of {name}"
        batches = f"{loop} passes no batch to compute_loss or training_step"
        losses = f"{loop} calls neither compute_loss nor training_step"
        if self._model_hooked:
            batches += ", and no call of its model in training mode was seen"
            losses += ", and no call of its model was seen to return a loss"
        if "passed" in self.seen:
            batches = f"the batches of {name} hold no tensor"
        named = f"the batches of {name} hold no input_ids or labels by name"
        why = {
            "exact.batches": ("batches", batches),
            "tokens": ("tokens", named if "batches" in self.seen else batches),
            "stability.loss_values": ("losses", losses),
            "perf.samples_per_sec": ("samples", losses),
        }
        return {key: reason for key, (part, reason) in why.items() if part not in self.seen}

    def why_no_step(self, trainer: Any) -> str | None:
        """Why updates were made and no step was seen; None where there was no update."""
        if not self._updates:
            return None
        return (
            f"the training loop of {type(trainer).__name__} made {self._updates} updates and "
            "never called on_step_end: its steps cannot be told apart"
        )
