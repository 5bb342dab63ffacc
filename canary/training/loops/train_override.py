"""Follow a trainer that overrides `train`, such as trl's PPOTrainer.

Such a loop makes callbacks only when the training begins and ends, at logs and at each step's end.
So rollouts, forwards, losses and updates are read where they
happen: at `generate`, `forward`, `backward` and the optimizer's `step`. A trainer whose attribute
`watch` is an `Unwatched` reports them itself, exactly, to the object that replaces it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from canary.training.collectors.aside import uncounted
from canary.training.collectors.batches import generated

if TYPE_CHECKING:
    from canary.training.loops.trainer import TrainerCollector

Wrap = Callable[[Any, str, Callable[..., Any]], None]

NOT_METRICS = ("episode", "epoch", "eps", "lr", "step_time")
"""Logged values that are not metrics: progress, and clock readings."""


class LoopEnded(Exception):
    """Leaves the loop of a training that is cut short."""


class OverriddenLoop:
    """Puts into the running step of a collector: losses of updates, sampled sequences, metrics."""

    calls_step_ends = False
    """Whether it calls `step_ends` itself; otherwise a step ends at `on_step_end`."""

    def __init__(self, collector: TrainerCollector) -> None:
        self._collector = collector
        self._trainer = collector.trainer
        self._clock = collector.clock
        self.updates = 0
        """Those of the running step."""

    def attach(self, wrap: Wrap) -> None:
        """Wrap on the instances what the loop calls; `backward` is timed already, and updates are
        hooked."""
        trainer, model = self._trainer, self._trainer.model
        wrap(getattr(model, "policy", model), "generate", self._around_generate)
        wrap(model, "forward", functools.partial(self._in_phase, "forward"))
        wrap(trainer.accelerator, "backward", self._around_backward)
        wrap(trainer, "log", self._around_log)

    def _in_phase(self, phase: str, original: Any, *args: Any, **kwargs: Any) -> Any:
        with self._clock.phase(phase):
            return original(*args, **kwargs)

    def _around_generate(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        with self._clock.phase("generation"):
            output = original(*args, **kwargs)
        prompts, completions = generated(output, args, kwargs)
        if prompts is not None:
            self._enters(self._rollout(prompts, kwargs.get("attention_mask"), completions))
        return output

    def _enters(self, rollout: Mapping[str, torch.Tensor]) -> None:
        now = self._collector.now
        now.samples = (now.samples or 0) + len(rollout["prompt_ids"])
        self._collector.batch_enters(rollout)

    def _rollout(
        self, prompts: torch.Tensor, mask: torch.Tensor | None, completions: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Return ids and masks. `prompts`, `mask`: (sequences, prompt); the mask of a completion
        ends after its first EOS."""
        eos = getattr(getattr(self._trainer, "processing_class", None), "eos_token_id", None)
        kept = torch.ones_like(completions)
        if eos is not None:
            ends = completions.eq(eos).long()
            kept = (ends.cumsum(dim=1) - ends).eq(0).long()
        return {
            "prompt_ids": prompts,
            "prompt_mask": torch.ones_like(prompts) if mask is None else mask.long(),
            "completion_ids": completions,
            "completion_mask": kept,
        }

    def _around_backward(self, original: Any, loss: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        self._collector.now.losses.append(loss.detach())
        return original(loss, *args, **kwargs)

    def _around_log(self, original: Any, logs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        found = {
            name: float(value)
            for name, value in logs.items()
            if isinstance(value, int | float) and name not in NOT_METRICS
        }
        found.setdefault("updates", float(self.updates))
        self._collector.shows(found)
        return self._in_phase("logging", original, logs, *args, **kwargs)


class Unwatched:
    """Receives the events of a loop whose step is a rollout and its updates, and ignores them."""

    def phase(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Count the time inside as this phase (see `canary.record.phases`)."""
        return contextlib.nullcontext()

    def rollout(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take the inputs of this step's updates: `prompt_ids, prompt_mask, completion_ids,
        completion_mask`, each (rows, tokens), and everything computed from them."""

    def loss(self, loss: torch.Tensor) -> None:
        """Take the raw loss of one update, as it was differentiated."""

    def metrics(self, found: Mapping[str, float]) -> None:
        """Take the step's metrics, before `on_step_end`."""

    def step_over(self) -> None:
        """End the step, after `on_step_end`, logging and saving."""


def is_instrumented(trainer: Any) -> bool:
    """Return whether the loop reports; `watch` of a user's trainer may be something else."""
    return isinstance(getattr(trainer, "watch", None), Unwatched)


class InstrumentedLoop(OverriddenLoop, Unwatched):
    """Gathers one step of a loop that reports itself."""

    calls_step_ends = True

    def attach(self, wrap: Wrap) -> None:
        """Listen to the trainer, and wrap nothing."""
        self._trainer.watch = self

    def phase(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Time it with the clock of the steps."""
        return self._clock.phase(name)

    def rollout(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Count the samples, and during the look collect the tensors."""
        self._enters(tensors)
        self._collector.look.exact.rollout(tensors)

    @uncounted()
    def loss(self, loss: torch.Tensor) -> None:
        """Keep the loss on the device until the step ends."""
        self._collector.now.losses.append(loss.detach())

    def metrics(self, found: Mapping[str, float]) -> None:
        """Keep the metrics for the step's row."""
        self._collector.shows(found)

    def step_over(self) -> None:
        """End the step here."""
        self._collector.override_step_ends(self)
