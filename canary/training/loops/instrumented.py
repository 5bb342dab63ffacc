"""A training loop that tells by itself what it does: phases, rollouts, losses, metrics.

`OwnLoop` finds that out from the outside, at `generate` and `forward`. A trainer whose attribute
`watch` is an `Unwatched` is asked to tell the one that is put there instead, which is exact.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Protocol

import torch

from canary.training.loops.train_override import OwnLoop, Wrap


class LoopEvents(Protocol):
    """Is told of a loop whose step is a rollout and the updates on it."""

    def phase(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Time inside belongs to this phase (see `canary.record.phases`)."""

    def rollout(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """What enters the updates of this step: `prompt_ids, prompt_mask, completion_ids,
        completion_mask`, each (rows, tokens), and what was computed of them."""

    def loss(self, loss: torch.Tensor) -> None:
        """The raw loss of one update, as it was differentiated."""

    def metrics(self, found: Mapping[str, float]) -> None:
        """The step's metrics, before its end is called back."""

    def step_over(self) -> None:
        """All of the step is done: its end was called back, it was logged and saved."""


class Unwatched:
    """Nobody is told."""

    def phase(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Not timed."""
        return contextlib.nullcontext()

    def rollout(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Not kept."""

    def loss(self, loss: torch.Tensor) -> None:
        """Not kept."""

    def metrics(self, found: Mapping[str, float]) -> None:
        """Not kept."""

    def step_over(self) -> None:
        """Not cut."""


def tells(trainer: Any) -> bool:
    """Whether the trainer's loop tells; a `watch` of a user's own trainer is something else."""
    return isinstance(getattr(trainer, "watch", None), Unwatched)


class ToldLoop(OwnLoop):
    """Gathers one step of a loop that tells (see `LoopEvents`)."""

    can_be_asked = tells_its_end = True

    def attach(self, wrap: Wrap) -> None:
        """Listens to the trainer; wraps nothing but the optimizer's step."""
        self._trainer.watch = self
        wrap(self._trainer.optimizer, "step", self._around_update)

    def phase(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Timed by the clock of the steps."""
        return self._clock.phase(name)

    def rollout(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Counted, and in the probe looked at."""
        self.samples += len(tensors["completion_ids"])
        self._batch_enters(tensors)
        if self._exact is not None:
            self._exact.rollout(tensors)

    def loss(self, loss: torch.Tensor) -> None:
        """Kept on the device until the step is over."""
        self.losses.append(loss.detach())

    def metrics(self, found: Mapping[str, float]) -> None:
        """Those of the step's row."""
        self.told = dict(found)

    def step_over(self) -> None:
        """Cuts the step here."""
        self._step_ends(self)
