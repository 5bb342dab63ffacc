"""One plain loop while it is recorded: what belongs to a step, and when the step ends."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn
from torch.optim import Optimizer

from canary.protocol.failure import one_line
from canary.protocol.job import TORCH_LOOP, Job, Result
from canary.record.exact import Micro
from canary.record.ranks import rank_path
from canary.record.step_row import Row
from canary.training.anomaly.hooks import StopTraining
from canary.training.attach.process import print_without_traceback
from canary.training.collectors.aside import uncounted
from canary.training.collectors.batches import batch_sha256, hashable
from canary.training.collectors.named import Named
from canary.training.collectors.steps import Scalar
from canary.training.exact.parameters import parameters_of
from canary.training.launch import TrainingLaunch
from canary.training.recorder.collector import LoopCollector, scalar
from canary.training.torch_loop.batches import Made, as_tokens, fed
from canary.training.torch_loop.plain_loop import (
    INSIDE_BACKWARD,
    OF_GRADIENTS,
    UNSEEN,
    PlainLoop,
    ProcessEnd,
    autocast_dtype,
    facts_of_ranks,
    settings_of,
)
from canary.training.torch_loop.step_optimizers import StepOptimizers, as_one, size_of

Known = TypeVar("Known")
MOST_SETTINGS = 8
"""Optimizers whose settings are recorded; some loops have one for each parameter."""


class Recording(LoopCollector):
    """Collects the steps of one loop that does not know of the canary, and ends each;
    `StepOptimizers` knows which optimizers make a step."""

    loop: PlainLoop

    def __init__(
        self,
        job: Job,
        launch: TrainingLaunch,
        tops: Sequence[nn.Module],
        optimizers: Sequence[Optimizer],
    ) -> None:
        """`tops`: the outermost modules that hold the parameters. `optimizers`: all of this
        process, those of the largest model first."""
        self.model = as_one(tops)
        self.optimizers = StepOptimizers(
            optimizers, None if self.model is None else self.model.parameters()
        )
        self.size = self.optimizers.size
        self.thread = threading.get_ident()
        loop = PlainLoop(
            name=TORCH_LOOP,
            model=self.model,
            optimizers=self.optimizers.own,
            settings=settings_of(optimizers[:MOST_SETTINGS]),
            distributed_facts=facts_of_ranks(tops[0] if tops else None),
        )
        self._file = rank_path(Path(job.rows_file), launch.rank)
        self._bytes_before = self._file.stat().st_size if self._file.exists() else 0
        self._seen: set[str] = set()
        """Which keys of `UNSEEN` the steps showed."""
        super().__init__(loop, job, launch, driven=True)
        every = (id(value) for one in optimizers for value in parameters_of(one))
        self.look.exact.trained_in_turn = frozenset(every)
        self._note_choice(optimizers)
        self._steps_inside_backward = self._stepped_inside = self._updating = False
        modules = () if self.model is None else self.model.modules()
        self._embeds = any(isinstance(one, nn.Embedding) for one in modules)
        self._masks: dict[str, bool] = {}
        self._given: list[Named] = []
        """The batches of the running step."""
        self._foreign: list[Scalar] = []
        self._entered: Named | None = None
        """What the model was called with last."""
        self._earlier = Micro()
        """The calls before, for the same backward: their count, and a hash of what entered."""
        self._made = Made()
        self._micro_batches = self._evaluations = 0
        self._learned: dict[str, Any] = {}
        self._dtype: str | None = None
        self.is_over = False
        """Whether the last step to record has ended."""
        self.start()
        self.step_begins(None)
        ProcessEnd(self._process_ends)

    def _note_choice(self, optimizers: Sequence[Optimizer]) -> None:
        own = self.optimizers.own
        others = [one for one in optimizers if one not in own]
        if others:
            names = ", ".join(f"{type(one).__name__} of {size_of(one)}" for one in others)
            self._training.notes.append(
                f"steps are those of {type(own[0]).__name__}, which trains the largest model "
                f"({self.size} parameters); not recorded: {names}"
            )

    def moves(self) -> None:
        """The loop goes on in another thread: what the look counted in the first one is not all."""
        self.thread = threading.get_ident()
        self.look.exact.fail("its steps run in several threads")

    def timed(self, phase: str) -> contextlib.AbstractContextManager[None]:
        """Count the time inside as this phase."""
        return self._clock.phase(phase)

    def called(self, arguments: Named, *, trains: bool) -> None:
        """The model is called with gradients; `arguments`: the tensors by name. `trains`: whether
        it is in training mode; without it, a backward shows that this was no evaluation."""
        if trains:
            self._new_activity()
        self._looking(lambda: self._add_call(arguments))
        self._entered = arguments or self._entered
        if self._dtype is None:
            self._dtype = autocast_dtype(self._device)

    def _looking(self, call: Callable[[], Known]) -> Known | None:
        """Do what only a look needs."""
        if not self.look.is_on:
            return None
        with uncounted():
            return self.look.exact.contain(call)

    def _add_call(self, arguments: Named) -> None:
        for name in [name for name, value in arguments.items() if self._made.holds(value)]:
            del arguments[name]
        if arguments and self._entered:
            known = batch_sha256(hashable(self._entered)[0])
            before = self._earlier.get("earlier_sha256", "")
            self._earlier = Micro(
                earlier_calls=self._earlier.get("earlier_calls", 0) + 1,
                earlier_sha256=hashlib.sha256((before + known).encode()).hexdigest(),
            )

    def returned(self, outputs: Any) -> None:
        """The model returned from a call with gradients."""
        self._looking(lambda: self._made.add(outputs))

    def computed(self, losses: Sequence[torch.Tensor]) -> bool:
        """Return whether the model returned these losses, so that all they read entered it."""
        return all(map(self._made.computed, losses))

    def backward_begins(
        self, losses: Sequence[torch.Tensor], batches: Sequence[Any], *, inside: bool = False
    ) -> None:
        """A backward of these losses begins; `batches`: what loaders yielded for it; `inside`:
        whether the model itself computed the losses."""
        self._new_activity()
        if self._evaluations > 1:
            self._forget_entered()
            return
        for loss in losses:
            self.now.losses.append(scalar(loss, "a loss"))
        entered = self._entered or Named()
        from_loader = bool(batches)
        if not batches and entered:
            batches = [entered]
        for batch in batches:
            tensors = as_tokens(batch, embeds=self._embeds, masks=self._masks)
            tensors.entered = True
            if from_loader:
                tensors.more = self._looking(functools.partial(fed, tensors, entered))
            else:
                tensors.more = self._earlier
                # Seen only where it enters the model: labels are elsewhere.
                tensors.unseen = (*tensors.unseen, *(() if inside else ("labels",)))
            if not self._micro_batches and not self.steps:
                sizes = [len(value) for value in tensors.values() if getattr(value, "ndim", 0)]
                self._learned |= {"per_device_train_batch_size": sizes[0]} if sizes else {}
            self._micro_batches += 1
            self._given.append(tensors)
            self.batch(tensors)
        self._forget_entered()

    def _forget_entered(self) -> None:
        self._entered, self._earlier, self._made = None, Micro(), Made()

    def backward_ended(self, scale: float = 1.0) -> None:
        """The backward ended. `scale`: what a gradient scaler multiplied the loss by."""
        if self._evaluations <= 1:
            super().backward_ended(scale)
        if self._stepped_inside:
            self._stepped_inside = False
            self.optimizers.expect_these()
            self._step_over()

    def clipped(self, parameters: Sequence[Any], max_norm: Any, norm: Any) -> None:
        """Gradients are clipped; `norm` is theirs before."""
        if not parameters or not self.optimizers.holds(parameters[0]):
            return
        if type(norm) is torch.Tensor and norm.numel() == 1:
            self.now.grad_norm = scalar(norm, "a norm")
        if self.steps == 0 and isinstance(max_norm, int | float):
            self._learned["max_grad_norm"] = float(max_norm)

    def _new_activity(self) -> None:
        """The model is used: a step whose optimizers did not all step is over, and after the last
        recorded step the loop is ended."""
        if self.is_over:
            self.past_end()
        # The first step shows which optimizers step between backwards of the primary.
        first, optimizers = not self.steps, self.optimizers
        if optimizers.primary_stepped:
            self._note_left_out(optimizers.leave_out(late=True) if first else 0)
            optimizers.expect_these()
            self._step_over()
        elif optimizers.any_stepped and not self._updating:
            self._note_left_out(optimizers.leave_out(late=False) if first else 0)
            self._foreign += self.now.losses
            self.drop_attempt()
            for tensors in self._given:
                self.batch(tensors)
            optimizers.step_ended()

    def _note_left_out(self, count: int) -> None:
        if count:
            self._training.notes.append(
                f"steps and losses are those of the optimizer of {self.size} parameters; not "
                f"recorded: {count} of this model with a backward of their own"
            )

    def update_begins(self, optimizer: Optimizer, *, inside: bool) -> None:
        """An optimizer of the model is about to step. `inside`: within a backward, which goes on,
        so that no moment has all gradients."""
        if self.is_over and not inside:
            self.past_end()
        self._updating = True
        if inside:
            self._stepped_inside = True
            self._steps_inside_backward = True
        elif self.optimizers.has_stepped(optimizer):
            self.optimizers.expect_these()
            self._step_over()
        self._evaluations = 0

    def closure_begins(self) -> None:
        """The optimizer evaluates the loss, perhaps not for the first time."""
        self._evaluations += 1

    def update_ended(self, optimizer: Optimizer) -> None:
        """An optimizer of the model has stepped."""
        self._evaluations = 0
        self._updating = False
        self.optimizer_ended()
        self.optimizers.stepped(optimizer)
        if not self._stepped_inside and self.optimizers.all_stepped:
            self._step_over()

    def other_stepped(self) -> None:
        """An optimizer of another model has stepped: the losses before were its own."""
        self._foreign += self.now.losses
        self.now.losses = []

    def skipped(self) -> None:
        """A gradient scaler skipped the step: it does not count."""
        self.drop_attempt()
        self._micro_batches = 0
        self._foreign = []

    def _step_over(self) -> None:
        self.optimizers.step_ended()
        self._given = []
        foreign, self._foreign = self._foreign, []
        self.now.losses = self.now.losses or foreign
        if not self.steps:
            self._learned["gradient_accumulation_steps"] = max(1, self._micro_batches)
            self._training.learned(self._learned, self._dtype)
            if not self._job.exact:  # then the process ends with the last step of the look
                self._training.begun(self.loop, self._device)
        self._micro_batches = 0
        try:
            self.step_ends()
        except StopTraining as stop:
            print_without_traceback(stop)
            self.end(stop)
            raise
        if self.steps == self.stop_after:
            self.is_over = True
            self.stop()
        else:
            self.step_begins(None)

    def step_ended(self) -> None:
        """End a loop that is only looked at, once its rows are written."""
        if self.steps == self.stop_after:
            self.rows.flush(wait=True)
        super().step_ended()

    def keep(self, row: Row) -> None:
        """Append to the job's file of rows, and note what they hold."""
        shown = {
            "losses": row["loss"] is not None,
            # The look reads them by itself.
            "norms": row["grad_norm"] is not None and not row.get("look"),
            "tokens": row["input_tokens"] is not None or row["label_tokens"] is not None,
            "labels": row["label_tokens"] is not None,
            "samples": bool(row["samples"]),
        }
        self._seen |= {name for name, is_shown in shown.items() if is_shown}
        super().keep(row)

    def _process_ends(self, error: BaseException | None) -> None:
        """The process ends, perhaps by an error."""
        self.exits = True
        if self.optimizers.any_stepped and not self.is_over and error is None:
            self._step_over()
        self.end(None if self.is_over else error)

    def _result(self) -> Result:
        result = super()._result()
        if not self.steps:
            hint = "give the command that trains, or use canary.Recorder in your training loop"
            return replace(result, hint=hint)
        missing = {part: why for name, (part, why) in UNSEEN.items() if name not in self._seen}
        if "tokens" not in self._seen:
            missing.pop("tokens.label_tokens", None)  # one reason is enough
        if self._steps_inside_backward:
            missing |= dict.fromkeys(OF_GRADIENTS, INSIDE_BACKWARD)
        return replace(result, unmeasured=result.unmeasured | missing)

    def failed(self, error: Exception) -> None:
        """The canary could not follow the loop: only the record says so."""
        if not self.written:
            self.written = True
            with self._stack:
                self.give_up()
                reason = f"the canary could not follow this loop: {one_line(error)}"
                self._training.write(Result("failed", reason, "please report it", see_log=True))

    def discard(self) -> None:
        """Forget the loop: another training is recorded in its place."""
        self.written = True
        self.give_up()
        with self._stack, contextlib.suppress(OSError):
            self._training.discard()
            os.truncate(self._file, self._bytes_before)

    def describe(self) -> str:
        """Return what was recorded, for a note."""
        kind = type(self.loop.optimizers[0]).__name__
        return f"{self.steps} steps of {kind} on {self.size} parameters"


def loss_tensors(given: Any) -> list[torch.Tensor]:
    """Return the scalars on which backward is called."""
    several = [given] if isinstance(given, torch.Tensor) else given
    if not isinstance(several, list | tuple):
        return []
    return [one for one in several if isinstance(one, torch.Tensor) and one.numel() == 1]
