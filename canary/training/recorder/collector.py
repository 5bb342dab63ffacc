"""Collects one row per step of a loop, through the step's calls and the optimizers' hooks. Stores
rows and result for the job of `canary exec`."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import torch

from canary.errors import UsageError
from canary.protocol.failure import describe_failure
from canary.protocol.job import JOB, Job, Result
from canary.record.step_row import Row
from canary.training.attach.process import TURN, leave, say, wait_for_the_end
from canary.training.collectors.aside import uncounted
from canary.training.collectors.batches import rows_of
from canary.training.collectors.calls import can_count_calls, count_calls
from canary.training.collectors.named import named
from canary.training.collectors.steps import EndedSteps, RunningStep
from canary.training.exact.parameters import Gradients, rate_of
from canary.training.launch import TrainingLaunch, claimed_launch, set_up_torch
from canary.training.recorder.loop import Loop


class LoopCollector:
    """Collects the steps of one loop: a row each, and exact signals during the look."""

    written = False
    """Whether the result is written."""
    exits = False
    """Whether the process itself ends."""

    def __init__(
        self, loop: Loop, job: Job, training: TrainingLaunch, *, driven: bool = False
    ) -> None:
        """`driven`: the caller reports backwards and updates, so nothing of the loop is hooked."""
        self._driven = driven
        self._job = job
        self._training = training
        self._stack = contextlib.ExitStack()
        self.stop_after = job.stop_after
        """Steps after which recording ends; None for all steps."""
        self.loop = loop
        self.steps = 0
        """Finished steps."""
        self.begun = False
        """Whether any step has begun."""
        set_up_torch(job)
        if can_count_calls():
            training.calls = self._stack.enter_context(count_calls())
        training.lap("before_training")
        self.look = look = training.begin(loop, loop.describe())
        self._gradients: Gradients | None = None
        if look.is_on and loop.model is not None:
            self._gradients = Gradients(loop.model, look.exact)
            look.at_end(self._unhook_gradients)
        self._device = loop.device
        self.rows = EndedSteps(self._device, self.keep, look, training.profiler(self._device))
        self._clock = self.rows.clock
        self.now = RunningStep()
        """What the running step has shown."""
        self._running = False
        self._handles: list[Any] = []
        self._batch_given = self._batch_read = False
        self._before_optimizer = "other"

    def start(self) -> None:
        """Begin the loop: hook the optimizers. Time before the first step counts as data."""
        if self.look.is_on:
            self.look.exact.training_begins()
            if self._device.type == "cuda":
                # Hashing a large model takes memory that is not the loop's.
                torch.cuda.reset_peak_memory_stats(self._device)
        if not self._driven:
            if self._gradients is not None:
                self._gradients.begin()
            for optimizer in self.loop.optimizers:
                self._handles.append(optimizer.register_step_pre_hook(self.optimizer_begins))
                self._handles.append(optimizer.register_step_post_hook(self.optimizer_ended))
        self.rows.collectives.begin()
        self._clock.switch("data")
        self.rows.begin()

    def stop(self) -> None:
        """End the loop: unhook the optimizers, and pass on the last rows."""
        self.detach()
        self.rows.end()

    def give_up(self) -> None:
        """Stop collecting, after the loop failed."""
        self.detach()
        if self.rows.profiler is not None:
            self.rows.profiler.give_up()
        self.look.give_up()

    def detach(self) -> None:
        """Remove the hooks on optimizers and collectives."""
        self.rows.collectives.end()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _unhook_gradients(self) -> None:
        if self._gradients is not None:
            self._gradients.end()
            self._gradients = None

    def step_begins(self, batch: Any) -> None:
        """Begin a step, or the next micro-batch if the optimizer has not stepped yet."""
        self._clock.switch("other")
        if not self._running:
            self._running = self.begun = True
            if self.loop.model is not None:
                self.look.exact.update_begins()
        if batch is not None:
            self.batch(batch)

    def close_late_step(self) -> None:
        """Close a step whose optimizer stepped after its `recorder.step`."""
        if self._running and self.now.stepped:
            self._close()
            self.step_ended()

    def step_ends(self) -> bool:
        """Close the step if it is over (no optimizer, or it has stepped); return whether it is."""
        ended = self.now.stepped or not self.loop.optimizers
        if ended:
            self._close()
        self._clock.switch("data")
        if ended:
            self.step_ended()
        return ended

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time inside as phase `name`."""
        with self._clock.phase(name):
            yield
        if name == "backward" and self._gradients is not None:
            self._gradients.phase_ended()

    @uncounted()
    def batch(self, batch: Any) -> None:
        """Count one micro-batch, and pass it to the exact signals."""
        self._batch_given = True
        tensors = named(batch)
        if not tensors:
            return
        self._batch_read = True
        self.now.add_tokens(tensors)
        self.now.samples = (self.now.samples or 0) + rows_of(tensors)
        self.look.exact.micro_batch(tensors)

    def unmeasured(self) -> dict[str, str]:
        """Return the signals that the steps did not show, and why."""
        if self._batch_read:
            return {}
        return {"exact.batches": self.loop.why_no_batch(self._batch_given)}

    def optimizer_begins(
        self, optimizer: torch.optim.Optimizer, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Sequence[Any], Mapping[str, Any]] | None:
        """An optimizer is about to update: from gradients that are ready, or from those of its
        closure's first call."""
        self.optimizer_called()
        ready = [self.gradients_ready]
        watched = around_closure(args, kwargs, bool, lambda: ready and ready.pop()())
        if watched is None:
            self.gradients_ready()
        return watched

    def optimizer_called(self) -> None:
        """An optimizer's step begins; with a closure its gradients come later."""
        self._before_optimizer = self._clock.switch("optimizer")
        now = self.now
        if not now.stepped and now.learning_rate is None:
            rate = rate_of(self.loop.optimizers)
            now.learning_rate = rate.detach().clone() if isinstance(rate, torch.Tensor) else rate

    def gradients_ready(self) -> None:
        """The optimizer is about to use the gradients."""
        if self._gradients is None or self.now.stepped:
            return
        applied = self._gradients.optimizer_begins()
        if self.now.grad_norm is None:
            self.now.grad_norm = applied

    def backward_ended(self, scale: float = 1.0) -> None:
        """A backward of a driven loop ended. `scale`: what a gradient scaler multiplied by."""
        if self._gradients is not None and not self.now.stepped:
            self._gradients.backward_ended(scale)

    def optimizer_ended(self, *_: Any) -> None:
        """An optimizer's step ended."""
        self.now.stepped = True
        self._clock.switch(self._before_optimizer)

    def drop_attempt(self) -> None:
        """Forget the losses and batches of a step that a gradient scaler skipped."""
        self.now = RunningStep()
        if self._gradients is not None:
            self._gradients.drop_attempt()
        self.look.exact.drop_micro_batches()

    def _close(self) -> None:
        self.steps += 1
        now, self.now = self.now, RunningStep()
        self._running = False
        self.look.exact.work_ends(self.steps)
        self.look.exact.update_ended()
        if self._gradients is not None:
            self._gradients.step_ended()
        self.look.exact.step_ended(self.steps)
        self.rows.close(self._job.launch, self.steps, now, self.loop.loss_of)

    def keep(self, row: Row) -> None:
        """Append to the job's file of rows."""
        self._training.keep(row)

    def step_ended(self) -> None:
        """End a loop that is only looked at."""
        if self._job.exact and self.steps == self.stop_after:
            self.end(None)

    def past_end(self) -> NoReturn:
        """End the process of a loop that goes on."""
        if not self.written:
            self._training.was_cut(self.steps)
        self.end(None)
        leave(f"ended after step {self.steps}; what comes after the loop does not run")

    def end(self, error: BaseException | None) -> None:
        """Write the result for the parent, once. It then ends a process that is only looked at, and
        that does not end by itself."""
        if self.written:
            return
        self.written = True
        with self._stack:
            # `sys.exit()` without a code is no failure.
            if error is not None and (not isinstance(error, SystemExit) or error.code):
                self.give_up()
                self._training.write(describe_failure(error))
                return
            self.stop()
            self._training.write(replace(self._result(), exits=self.exits))
        if self._job.exact and self.steps and not self.exits:
            wait_for_the_end()

    def _result(self) -> Result:
        if not self.steps:
            return Result(
                status="failed",
                reason=self.loop.why_no_step(self.begun),
                hint="put each step of the loop into: with recorder.step(batch) as step",
                usage_error=True,
            )
        result = self._training.finished(self.loop, self._device)
        unmeasured = result.unmeasured | self.loop.unmeasured() | self.unmeasured()
        return replace(result, unmeasured=unmeasured)


def claimed_job() -> tuple[Job, TrainingLaunch] | None:
    """Return the job of a loop under `canary exec`; None outside of it, and for a later loop. If
    the first loop was to be cut short, a later one ends the process."""
    file = os.environ.get(JOB)
    if file is None:
        say("this loop is not recorded: start it with canary exec")
        return None
    TURN.take("canary.Recorder")
    try:
        job = Job.read(Path(file))
    except OSError:  # the run's folder was removed
        return None
    import psutil  # a user's Python may lack it

    started = time.perf_counter() - (time.time() - psutil.Process().create_time())
    launch = claimed_launch(job, started)
    if launch is None:
        if job.stop_after is not None:
            leave("one training was recorded; the next one does not run")
        return None
    launch.notes += TURN.notes
    return job, launch


@uncounted()
def scalar(value: Any, name: str) -> torch.Tensor | float:
    """Return one number; a tensor stays on its device.

    Raises:
        UsageError: it is not one number.
    """
    if isinstance(value, torch.Tensor):
        if value.numel() == 1:
            return value.detach().reshape(())
        text = f"a tensor of shape {tuple(value.shape)}"
    else:
        try:
            return float(value)
        except (TypeError, ValueError):
            text = type(value).__name__
    raise UsageError(
        f"{name} takes one number, got {text}", "give its mean, or a tensor of one element"
    )


def around_closure(
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    begins: Callable[[], Any],
    ended: Callable[[], Any],
) -> tuple[Sequence[Any], Mapping[str, Any]] | None:
    """Return the arguments of an optimizer's step, with the optimizer first, so that its closure
    calls `begins` and `ended` around its call; None without a closure."""
    named = kwargs.get("closure")
    given = named or next((one for one in args[1:2] if callable(one)), None)
    if given is None:
        return None

    @functools.wraps(given)
    def closure(*args: Any, **kwargs: Any) -> Any:
        begins()
        loss = given(*args, **kwargs)
        ended()
        return loss

    if named is not None:
        return args, {**kwargs, "closure": closure}
    return (args[0], closure, *args[2:]), kwargs
