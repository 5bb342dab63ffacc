"""Find the steps of a trainer's loop that makes no callbacks, from its optimizer updates.

Torch's hooks report every optimizer step. Without callbacks, a step ends when a batch enters after
an update, at the next update, or when the training ends.
"""

from __future__ import annotations

from typing import Any


class SilentLoop:
    """Tracks which events callbacks report, and which only torch's hooks report."""

    def __init__(self, model_hooked: bool) -> None:
        self._model_hooked = model_hooked
        self.methods_used = False
        """Whether the loop has called `compute_loss` or `training_step`."""
        self.calls_before_updates = False
        """Whether it makes callbacks before its updates."""
        self.calls_at_steps = False
        """Whether it makes callbacks at the beginning or end of steps."""
        self.seen: set[str] = set()
        """Things that its steps showed: `passed` (a batch was passed), `batches` (of tensors),
        `tokens`, `losses`, `samples`."""
        self._updates = 0
        self._updated = False

    def update_begins(self) -> bool:
        """An optimizer is about to step: return whether no callback has reported it."""
        return not self.calls_before_updates

    def update_ended(self) -> bool:
        """An optimizer has stepped: return whether no callback has reported it."""
        self._updates += 1
        self._updated = True
        return not self.calls_before_updates

    def step_is_over(self) -> bool:
        """Return whether a step ended without a callback since the last call."""
        over, self._updated = self._updated and not self.calls_at_steps, False
        return over

    def unmeasured(self, trainer: Any) -> dict[str, str]:
        """Return the figures that the steps did not show, and why."""
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
        """Return why updates were made but no step was seen; None if there was no update."""
        if not self._updates:
            return None
        return (
            f"the training loop of {type(trainer).__name__} made {self._updates} updates but "
            "never called on_step_end, so its steps are unknown"
        )
