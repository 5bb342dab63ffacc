"""Collects one row per step of a loop, through the step's calls and the optimizers' hooks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from canary.errors import UsageError
from canary.training.collectors.aside import uncounted
from canary.training.collectors.batches import rows_of
from canary.training.collectors.named import named
from canary.training.collectors.steps import EndedSteps, RunningStep
from canary.training.exact.parameters import Gradients, rate_of
from canary.training.recorder.loop import Loop

if TYPE_CHECKING:
    from canary.training.recorder.attached import JobKeeper


class LoopCollector:
    """Collects the steps of one loop: a row each for its keeper, and exact signals during the look.
    The keeper begins with it."""

    def __init__(self, loop: Loop, keeper: JobKeeper, *, driven: bool = False) -> None:
        """`driven`: the caller reports backwards and updates, so nothing of the loop is hooked."""
        self._driven = driven
        self.steps = 0
        """Finished steps."""
        self.begun = False
        """Whether any step has begun."""
        self.look = look = keeper.begin(loop)
        self._gradients: Gradients | None = None
        if look.is_on and loop.model is not None:
            self._gradients = Gradients(loop.model, look.exact)
            look.at_end(self._unhook_gradients)
        self._device = loop.device
        self.rows = EndedSteps(self._device, keeper.keep, look, keeper.profiler())
        self._clock = self.rows.clock
        self.loop = loop
        self._launch = keeper.launch
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

    def ended_outside(self) -> bool:
        """Close a step whose optimizer stepped after its `recorder.step`; return whether it did."""
        if not (self._running and self.now.stepped):
            return False
        self._close()
        return True

    def step_ends(self) -> bool:
        """Close the step if it is over (no optimizer, or it has stepped); return whether it is."""
        ended = self.now.stepped or not self.loop.optimizers
        if ended:
            self._close()
        self._clock.switch("data")
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

    def optimizer_begins(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """An optimizer is about to update, from gradients that are ready."""
        self.optimizer_called()
        self.gradients_ready()

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
        self.rows.close(self._launch, self.steps, now, self.loop.loss_of)


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
