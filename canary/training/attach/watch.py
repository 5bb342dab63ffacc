"""Wrap `train` of every `transformers.Trainer`, watch one call, and leave all else unchanged."""

from __future__ import annotations

import contextlib
import functools
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from canary.protocol.failure import describe_failure, one_line
from canary.protocol.job import JOB, Job, Result
from canary.training.anomaly.hooks import StopTraining
from canary.training.attach.process import (
    TURN,
    follow_parent,
    print_without_traceback,
    say,
    wait_for_the_end,
)
from canary.training.attach.suppress import StopAfter, Suppression
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
        self._suppression = Suppression(None if job.exact else say)

    def process_begins(self) -> None:
        """Count calls from here on, and stop pushes to a hub if the training is cut short."""
        self._calls = self._stack.enter_context(count_calls())
        if self._job.stop_after is not None:
            self._suppression.pushes()
        follow_parent()

    def around(self, trainer: Any, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call `train`, watched if it is the first. A call inside another is part of that one."""
        if self._running:
            return original(trainer, *args, **kwargs)
        self._running = True
        TURN.take(type(trainer).__name__)
        if PAIR.resume:
            kwargs = {**kwargs, "resume_from_checkpoint": PAIR.resume}
            args = args[1:]
        try:
            if self._job.stop_after is None or self._job.exact:
                return self._chosen(trainer, functools.partial(original, trainer, *args, **kwargs))
            with self._elsewhere(trainer):
                args, kwargs = resumed(args, kwargs, self._folder)
                return self._chosen(trainer, functools.partial(original, trainer, *args, **kwargs))
        finally:
            self._running = False

    def _chosen(self, trainer: Any, train: Callable[[], Any]) -> Any:
        launch = claimed_launch(self._job, self._started)
        if launch is None:
            return self._unwatched(trainer, train)
        return self._watched(launch, trainer, train)

    @contextlib.contextmanager
    def _elsewhere(self, trainer: Any) -> Iterator[None]:
        """Put checkpoints of a training that is cut short into a scratch folder. Else the trainer
        would delete older checkpoints of the user."""
        self._folder = trainer.args.output_dir
        trainer.args.output_dir = str(Path(self._job.scratch_dir) / "trainer")
        try:
            yield
        finally:
            trainer.args.output_dir = self._folder

    def _unwatched(self, trainer: Any, train: Callable[[], Any]) -> Any:
        """Run a second training unrecorded, and no longer than the first."""
        if self._job.stop_after is None:
            return train()
        self._suppression.uploads(trainer)
        callback = StopAfter(self._job.stop_after, self._suppression.saves)
        trainer.add_callback(callback)
        try:
            return train()
        finally:
            trainer.remove_callback(callback)

    def _watched(self, launch: TrainingLaunch, trainer: Any, train: Callable[[], Any]) -> Any:
        launch.notes += TURN.notes
        launch.calls = self._calls
        set_up_torch(self._job)
        if self._job.stop_after is not None:
            self._suppression.uploads(trainer)
        launch.lap("before_training")

        def cut() -> None:
            """Suppress later saves of a training that is cut short, and note it."""
            if self._job.exact:
                return
            self._suppression.saves()
            launch.was_cut()
            state = trainer.state
            # A loop without callbacks counts no steps.
            counted = f"{state.global_step} of {state.max_steps}"
            launch.notes.append(
                f"ended after step {counted if state.global_step else self._job.stop_after}: "
                "later saves, pushes and uploads were suppressed"
            )

        collector = launch.attach(trainer, on_cut=cut)
        try:
            outcome = collector.run(train)
        except BaseException as error:
            collector.detach()
            launch.write(describe_failure(error))
            if isinstance(error, StopTraining):
                print_without_traceback(error)
            raise
        launch.notes += self._suppression.notes
        launch.write(self._described(launch, trainer))
        collector.detach()
        if self._job.exact:
            wait_for_the_end()
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


def resumed(
    args: Sequence[Any], kwargs: Mapping[str, Any], folder: str
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return the arguments of `train`, with `resume_from_checkpoint=True` replaced by the newest
    checkpoint of `folder`: the trainer would search the scratch folder."""
    given = args[0] if args else kwargs.get("resume_from_checkpoint")
    if given is not True:
        return args, kwargs
    from transformers.trainer_utils import get_last_checkpoint

    newest = get_last_checkpoint(folder) if Path(folder).is_dir() else None
    if newest is None:
        return args, kwargs
    if args:
        return (newest, *args[1:]), kwargs
    return args, {**kwargs, "resume_from_checkpoint": newest}


def hook(module: ModuleType, started: float) -> None:
    """Hook the freshly loaded `transformers.trainer`; `started` is when the process began."""
    job = Job.read(Path(os.environ[JOB]))
    watch = WatchedTraining(job, started)
    trainer_class = module.Trainer
    _wrap(trainer_class, watch)

    def subclassed(cls: Any, /, **kwargs: Any) -> None:
        super(trainer_class, cls).__init_subclass__(**kwargs)
        # trl's PPOTrainer and some of users' trainers have another loop.
        if "train" in cls.__dict__:
            _wrap(cls, watch)

    trainer_class.__init_subclass__ = classmethod(subclassed)
    watch.process_begins()


def _wrap(cls: Any, watch: WatchedTraining) -> None:
    original = cls.__dict__["train"]

    @functools.wraps(original)
    def train(self: Any, *args: Any, **kwargs: Any) -> Any:
        return watch.around(self, original, args, kwargs)

    cls.train = train
