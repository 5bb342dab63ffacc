"""Follow a trainer with one callback, and with wrappers around a few methods of the instance.

Callbacks alone miss part of a step's time: data loading comes before `on_step_begin`, and logging
after `on_step_end`. The wrappers change only this instance, not the class or other trainers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from transformers import TrainerCallback

from canary.config.trainers import TRAINERS
from canary.record.step_row import Row
from canary.training.collectors.aside import Wrapping, uncounted
from canary.training.collectors.metrics import StepMetrics
from canary.training.collectors.named import Named, items_of, named, with_nested
from canary.training.collectors.profiler import StepProfiler
from canary.training.collectors.steps import EndedSteps, RunningStep, summed
from canary.training.exact.parameters import rate_of
from canary.training.look import Look
from canary.training.loops.train_override import (
    InstrumentedLoop,
    LoopEnded,
    OverriddenLoop,
    is_instrumented,
)

PHASE_OF_METHOD = {
    "get_batch_samples": "data",
    "compute_loss": "forward",
    "_maybe_log_save_evaluate": "logging",
    "_save_checkpoint": "checkpoint",
    "evaluate": "evaluation",
    "_evaluate": "evaluation",
    **{method: phase for row in TRAINERS.values() for method, phase in row.phases.items()},
}
"""Methods of `transformers.Trainer` and of single trainers, with the phase of their time. Methods
that a trainer lacks are skipped."""
LOGPROB_METHODS = ("_get_per_token_logps_and_entropies", "_get_per_token_logps")
"""Methods of trl's online trainers that compute log-probabilities; the second before trl 0.20."""


def _mean(losses: Sequence[float]) -> float | None:
    return sum(losses) / len(losses) if losses else None


def _whole(batch: Any, inputs: Mapping[str, Any]) -> Named:
    """Return all of a batch; `inputs`: what is counted of it, without text beside tensors."""
    whole = named(batch)
    if items_of(batch) is not None:
        whole.update({k: v for k, v in inputs.items() if isinstance(v, torch.Tensor)})
    # A loader yielded it, unless a trainer sampled it: then its floats are computed.
    whole.entered = "completion_ids" not in whole
    return whole


class TrainerCollector(TrainerCallback):
    """Collects one row per step for `sink`; during the look its signals get the same events."""

    def __init__(
        self,
        trainer: Any,
        sink: Callable[[Row], None],
        launch: int,
        *,
        look: Look,
        stop_after: int | None = None,
        ends_after_look: bool = False,
        profiler: StepProfiler | None = None,
    ) -> None:
        self.trainer = trainer
        self._launch = launch
        self._stop_after = stop_after
        self._ends_after_look = ends_after_look
        self.look = look
        self.was_cut = False
        """Whether the training would have gone on after its last recorded step."""
        self._ended = EndedSteps(torch.device(trainer.args.device), sink, look, profiler)
        self.clock = self._ended.clock
        self._collectives = self._ended.collectives
        self.now = RunningStep()
        self._learning_rate: float | None = None
        self._metrics = StepMetrics(trainer)
        self._ended_step: int | None = None
        self._in_loss = self._in_step = self._entered = False
        loop = InstrumentedLoop if is_instrumented(trainer) else OverriddenLoop
        self._override: OverriddenLoop | None = loop(self)
        self._wrapping = Wrapping()
        self._wrap = self._wrapping.wrap
        self._updates = 0
        self._calls_before_updates = False
        """Whether the loop makes callbacks before its updates."""
        self._tells_begins = False
        """Whether it makes callbacks when steps begin."""
        self._seen: set[str] = set()
        """What its steps showed: `passed` (a batch was passed), `batches` (of tensors), `tokens`,
        `losses`, `samples`."""
        self._finished = self._mean = False
        self._attach()

    def _attach(self) -> None:
        for name, phase in PHASE_OF_METHOD.items():
            self._wrap(self.trainer, name, functools.partial(self._in_phase, phase))
        self._wrap(self.trainer, "_inner_training_loop", self._around_loop)
        self._wrap(self.trainer, "compute_loss", self._around_loss)
        self._wrap(self.trainer, "training_step", self._around_training_step)
        for name in LOGPROB_METHODS:
            self._wrap(self.trainer, name, self._around_logprob)
        trainer = self.trainer
        older = not hasattr(trainer, "_generate_single_turn")
        if older and hasattr(trainer, "_generate_and_score_completions"):
            # Time `generate` itself: older online trainers call it in a method that does more.
            around = functools.partial(self._in_phase, "generation")
            for owner in (trainer.model, getattr(trainer, "llm", None)):
                self._wrap(owner, "generate", around)
        self._wrap(self.trainer, "_maybe_log_save_evaluate", self._around_logging)
        accelerator = self.trainer.accelerator
        self._wrap(accelerator, "backward", functools.partial(self._in_phase, "backward"))
        self._wrap(accelerator, "clip_grad_norm_", self._around_clip)
        self._wrapping.hook_updates(self._hooked_update_begins, self._hooked_update_ended)
        self.trainer.add_callback(self)

    def run(self, train: Callable[[], Any]) -> Any:
        """Call `train` and return its result, or None if it was cut short."""
        try:
            outcome = train()
        except LoopEnded:
            outcome = None
        if self._ended.begun:
            self._finish()
        return outcome

    @property
    def steps(self) -> int:
        """The number of steps that ended."""
        return self._ended.count

    def why_no_step(self) -> str | None:
        """Return why updates were made but no step ended, or None if that is not the case."""
        if self._ended.count or not self._updates:
            return None
        return (
            f"the training loop of {type(self.trainer).__name__} made {self._updates} updates but "
            "never called on_step_end, so its steps are unknown"
        )

    def unmeasured(self) -> dict[str, str]:
        """Return the figures that the steps did not show, and why."""
        if not self._ended.count:
            return {}
        name = type(self.trainer).__name__
        batches = f"the training loop of {name} passes no batch to compute_loss or training_step"
        losses = f"the training loop of {name} calls neither compute_loss nor training_step"
        if "passed" in self._seen:
            batches = f"the batches of {name} hold no tensor"
        named = f"the batches of {name} hold no input_ids or labels by name"
        why = {
            "exact.batches": ("batches", batches),
            "tokens": ("tokens", named if "batches" in self._seen else batches),
            "stability.loss_values": ("losses", losses),
            "perf.samples_per_sec": ("samples", losses),
        }
        return {key: reason for key, (part, reason) in why.items() if part not in self._seen}

    def detach(self) -> None:
        """Restore the trainer."""
        self.trainer.remove_callback(self)
        self._collectives.end()
        self._wrapping.undo()

    def _in_phase(self, phase: str, original: Any, *args: Any, **kwargs: Any) -> Any:
        with self.clock.phase(phase):
            return original(*args, **kwargs)

    def _around_loop(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        self._override = None
        return original(*args, **kwargs)

    @uncounted()
    def _add_loss(self, loss: torch.Tensor) -> None:
        if self._override is None:
            self.now.losses.append(loss.detach())

    def _around_loss(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        inputs = args[1] if len(args) > 1 else kwargs.get("inputs")
        training = self.trainer.model.training
        if training:
            self.batch_enters(inputs)
        self._in_loss = True
        try:
            outcome = original(*args, **kwargs)
        finally:
            self._in_loss = False
        if training and not self._in_step:
            self._add_loss(outcome[0] if isinstance(outcome, tuple) else outcome)
            # Losses divided by the tokens of the whole update are summed, not averaged.
            self._mean = kwargs.get("num_items_in_batch") is None
        return outcome

    @uncounted()
    def batch_enters(self, batch: Any) -> None:
        """Count a micro-batch; during the look its signals describe it."""
        self._entered = True
        self._seen.add("passed")
        items = items_of(batch)
        if items is not None and any(map(torch.is_tensor, items.values())):
            inputs = with_nested(items)
        else:
            inputs = named(batch)
        if not inputs:
            return
        self._seen.add("batches")
        if self.now.add_tokens(inputs):
            self._seen.add("tokens")
        if self.look.is_on:
            self.look.exact.micro_batch(_whole(batch, inputs))

    def _around_training_step(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        inputs = args[1] if len(args) > 1 else kwargs.get("inputs")
        # A user's training_step may take items out of its batch, so keep a copy.
        items = items_of(inputs)
        batch = named(inputs) if items is None else items
        self._in_step, self._entered = True, False
        try:
            loss = original(*args, **kwargs)
        finally:
            self._in_step = False
        if not self._entered and inputs is not None:
            self.batch_enters(batch)
        self._add_loss(loss)
        return loss

    def _around_logprob(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        if self._in_loss:
            return original(*args, **kwargs)
        with self.clock.phase("logprob"):
            return original(*args, **kwargs)

    def _around_clip(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        self.look.exact.gradients_ready()
        before = self.now.grad_norm
        with self.clock.phase("optimizer"):
            norm = self.now.grad_norm = original(*args, **kwargs)
        if self._override is not None and before is not None and norm is not None:
            # The largest norm of the step's updates, so that an explosion in one of them is seen.
            with uncounted():
                most = torch.maximum(torch.as_tensor(before), torch.as_tensor(norm))
                self.now.grad_norm = most
        return norm

    def _around_logging(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        if self._ended_step is not None:
            self.look.exact.work_ends(self._ended_step)
        result = original(*args, **kwargs)
        self._close_step()
        self._cut_if_over()
        return result

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        done = state.global_step
        if self._ends_after_look and self._stop_after is not None:
            self._stop_after += done  # the look of a resumed training is as long as any other
        if not self._ends_after_look:
            # How many steps will be recorded; some trainers do not know.
            limits = (state.max_steps, self._stop_after)
            known = [last - done for last in limits if last is not None and last > 0]
            self.look.length_is(min(known, default=None))
        self.look.exact.training_begins(done)
        self._collectives.begin()
        self._ended.begin(done)
        if self._override is not None:
            self._override.attach(self._wrap)

    def _hooked_update_begins(self, optimizer: Any, *_: Any) -> None:
        if self._ended.begun and not self._calls_before_updates:
            self._update_begins(optimizer)

    def _hooked_update_ended(self, *_: Any) -> None:
        self._updates += 1
        if self._override is not None:
            self._override.updates += 1
        if self._ended.begun and not self._calls_before_updates:
            self._update_ended()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._calls_before_updates = True
        self._update_begins(kwargs.get("optimizer") or self.trainer.optimizer)

    def _update_begins(self, optimizer: Any) -> None:
        self.look.exact.gradients_ready()
        self.look.exact.update_begins()
        self._learning_rate = float(rate_of([optimizer]))
        self.clock.switch("optimizer")

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._update_ended()

    def _update_ended(self) -> None:
        # The work of other callbacks at the step's end is not part of the update.
        self.clock.switch("other")
        self.look.exact.update_ended()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take the step's metrics. An overridden loop that does not call `step_ends` ends its step
        here."""
        self.clock.switch("other")
        if self._override is None:
            self.shows(self._metrics.fresh())
        self._ended_step = state.global_step
        if self._stop_after is not None and state.global_step >= self._stop_after:
            self.was_cut = state.global_step < state.max_steps
        if self._override is not None and self._override.calls_step_ends:
            self.look.exact.work_ends(state.global_step)
        elif self._override is not None:
            self.override_step_ends(self._override)
        elif not self._tells_begins:
            self._close_step()
            self._cut_if_over()

    def override_step_ends(self, loop: OverriddenLoop) -> None:
        """Close the step of an overridden loop."""
        self._close_step()
        loop.updates = 0
        self._cut_if_over()

    def shows(self, metrics: Mapping[str, float]) -> None:
        """Keep these metrics of the running step, and no others."""
        self.now.metrics = {name: [value] for name, value in metrics.items()}

    def _cut_if_over(self) -> None:
        """Leave the training's loop after the last wanted step."""
        if self.was_cut:
            raise LoopEnded

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # Without the wrapped logging method, the previous step ends here at the latest.
        self._tells_begins = True
        self._close_step()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._finish()

    def _finish(self) -> None:
        if self._finished:
            return
        self._finished = True
        self._close_step()
        self._ended.end()
        self._collectives.end()

    def _close_step(self) -> None:
        if self._ended_step is None:
            return
        self.look.exact.step_ended(self._ended_step)
        now, self.now = self.now, RunningStep()
        now.learning_rate = self._learning_rate
        if self._override is None:
            now.samples = int(self.trainer.args.per_device_train_batch_size) * len(now.losses)
        now.samples = now.samples or None  # not 0 if the loop did not show them
        step, self._ended_step = self._ended_step, None
        self._metrics.step_ended()
        self._seen |= {"losses"} if now.losses else set()
        self._seen |= {"samples"} if now.samples else set()
        # The trainer sums the losses of the micro-batches, because each is already divided.
        loss_of = _mean if self._mean or self._override is not None else summed
        self._ended.close(self._launch, step, now, loss_of)
