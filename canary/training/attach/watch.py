"""Wrap `train` of every `transformers.Trainer`, watch one call, and leave all else unchanged."""

from __future__ import annotations

import contextlib
import functools
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from canary.protocol.failure import describe_failure, one_line
from canary.protocol.job import JOB, Job, Result
from canary.training.anomaly.hooks import StopTraining
from canary.training.attach.process import (
    TURN,
    follow_parent,
    leave,
    print_without_traceback,
    wait_for_the_end,
)
from canary.training.collectors.aside import Wrapping, attributes_set
from canary.training.collectors.calls import count_calls
from canary.training.launch import TrainingLaunch, claimed_launch, set_up_torch
from canary.training.pairs import PAIR


class WatchedTraining:
    """The job of this process. Only the first training that begins is recorded."""

    def __init__(self, job: Job, started: float) -> None:
        self._job = job
        self._started = started
        self._running = False
        self._stack = contextlib.ExitStack()

    def process_begins(self) -> None:
        """Count calls from here on."""
        self._calls = self._stack.enter_context(count_calls())
        follow_parent()

    def around(self, trainer: Any, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call `train`, watched if it is the first. A call inside another is part of that one."""
        if self._running:
            return original(trainer, *args, **kwargs)
        self._running = True
        TURN.take(type(trainer).__name__)
        try:
            launch = claimed_launch(self._job, self._started)
            if launch is not None:
                return self._watched(launch, trainer, original, args, kwargs)
            if self._job.stop_after is not None:
                leave("one training was recorded; the next one does not run")
            return original(trainer, *args, **kwargs)
        finally:
            self._running = False

    def _watched(
        self,
        launch: TrainingLaunch,
        trainer: Any,
        original: Callable[..., Any],
        args: Any,
        kwargs: Any,
    ) -> Any:
        launch.notes += TURN.notes
        launch.calls = self._calls
        set_up_torch(self._job)
        if PAIR.resume:
            args, kwargs = args[1:], {**kwargs, "resume_from_checkpoint": PAIR.resume}
        launch.lap("before_training")
        collector = launch.attach(trainer)
        try:
            # A training that may be cut short pushes nothing and deletes no older checkpoint.
            kept = (("push_to_hub", False), ("save_total_limit", None))
            changes = kept if self._job.stop_after is not None else ()
            with attributes_set(*((trainer.args, *change) for change in changes)):
                outcome = collector.run(functools.partial(original, trainer, *args, **kwargs))
        except BaseException as error:  # The record holds every end of the user's training.
            collector.detach()
            launch.write(describe_failure(error))
            if isinstance(error, StopTraining):
                print_without_traceback(error)
            raise
        step = trainer.state.global_step
        if collector.was_cut and not self._job.exact:
            launch.was_cut(step)
        launch.write(self._described(launch, trainer))
        collector.detach()
        if self._job.exact:
            wait_for_the_end()
        if collector.was_cut:
            leave(f"ended after step {step}; what comes after the training does not run")
        return outcome

    def _described(self, launch: TrainingLaunch, trainer: Any) -> Result:
        """Return the result. If the canary itself fails, only the record says so."""
        try:
            return launch.completed(trainer)
        except Exception as error:  # noqa: BLE001 - a user's trainer may lack anything
            traceback.print_exc()
            return Result(
                status="failed",
                reason=f"the canary could not describe this training: {one_line(error)}",
                hint="please report it",
                see_log=True,
            )


def hook(module: ModuleType, started: float) -> None:
    """Hook the freshly loaded `transformers.trainer`; `started` is when the process began."""
    job = Job.read(Path(os.environ[JOB]))
    watch = WatchedTraining(job, started)
    trainer_class = module.Trainer

    def around(original: Callable[..., Any], trainer: Any, /, *args: Any, **kwargs: Any) -> Any:
        return watch.around(trainer, original, args, kwargs)

    Wrapping().wrap(trainer_class, "train", around)

    def subclassed(cls: Any, /, **kwargs: Any) -> None:
        super(trainer_class, cls).__init_subclass__(**kwargs)
        # trl's PPOTrainer and some of users' trainers have another loop.
        if "train" in cls.__dict__:
            Wrapping().wrap(cls, "train", around)

    trainer_class.__init_subclass__ = classmethod(subclassed)
    watch.process_begins()
