"""Follow a training loop that reports its phases, rollouts, losses and metrics itself.

`OverriddenLoop` derives these from outside, at `generate` and `forward`. A trainer whose attribute
`watch` is an `Unwatched` reports them exactly, to the object that replaces it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Protocol

import torch

from canary.training.loops.train_override import OverriddenLoop, Wrap


class LoopEvents(Protocol):
    """Receives the events of a loop whose step is a rollout and its updates."""

    def phase(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Count the time inside as this phase (see `canary.record.phases`)."""

    def rollout(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take the inputs of this step's updates: `prompt_ids, prompt_mask, completion_ids,
        completion_mask`, each (rows, tokens), and everything computed from them."""

    def loss(self, loss: torch.Tensor) -> None:
        """Take the raw loss of one update, as it was differentiated."""

    def metrics(self, found: Mapping[str, float]) -> None:
        """Take the step's metrics, before `on_step_end`."""

    def step_over(self) -> None:
        """End the step, after `on_step_end`, logging and saving."""


class Unwatched:
    """Ignores all events."""

    def phase(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Ignore the time."""
        return contextlib.nullcontext()

    def rollout(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Ignore the rollout."""

    def loss(self, loss: torch.Tensor) -> None:
        """Ignore the loss."""

    def metrics(self, found: Mapping[str, float]) -> None:
        """Ignore the metrics."""

    def step_over(self) -> None:
        """Ignore the step's end."""


def is_instrumented(trainer: Any) -> bool:
    """Return whether the loop reports; `watch` of a user's trainer may be something else."""
    return isinstance(getattr(trainer, "watch", None), Unwatched)


class InstrumentedLoop(OverriddenLoop):
    """Gathers one step of a loop that reports itself (see `LoopEvents`)."""

    obeys_control = calls_step_ends = True

    def attach(self, wrap: Wrap) -> None:
        """Listen to the trainer; wrap only the optimizer's step."""
        self._trainer.watch = self
        wrap(self._trainer.optimizer, "step", self._around_update)

    def phase(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Time it with the clock of the steps."""
        return self._clock.phase(name)

    def rollout(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Count the samples, and in the probe collect the tensors."""
        self.samples += len(tensors["completion_ids"])
        self._batch_enters(tensors)
        if self._exact is not None:
            self._exact.rollout(tensors)

    def loss(self, loss: torch.Tensor) -> None:
        """Keep the loss on the device until the step ends."""
        self.losses.append(loss.detach())

    def metrics(self, found: Mapping[str, float]) -> None:
        """Keep the metrics for the step's row."""
        self.step_metrics = dict(found)

    def step_over(self) -> None:
        """End the step here."""
        self._step_ends(self)
