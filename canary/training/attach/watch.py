"""Watches one `train()` of the user's command, and leaves everything else as it is."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from canary.protocol.failure import describe_failure, one_line
from canary.protocol.job import JOB, PARENT, Job, Result
from canary.training.anomaly.hooks import StopTraining
from canary.training.attach.suppress import Suppression
from canary.training.collectors.calls import count_calls
from canary.training.launch import Inside, begun, set_up_torch

END_WAIT_S = 60.0
"""How long a probe that is done waits for its parent to end it."""
PARENT_EVERY_S = 1.0


class WatchedTraining:
    """The job of this process. The first training that begins is the one recorded."""

    def __init__(self, job: Job, started: float) -> None:
        self._job = job
        self._started = started
        self._running = False
        self._stack = contextlib.ExitStack()
        self._suppression = Suppression(_say if job.kind == "measured" else None)

    def process_begins(self) -> None:
        """Counts calls from here on; a training that is cut short pushes nothing to a hub."""
        self._calls = self._stack.enter_context(count_calls())
        if self._job.stop_after is not None:
            self._suppression.pushes()
        job_file = Path(os.environ.get(JOB, ""))
        threading.Thread(target=_end_with_parent, args=[job_file], daemon=True).start()

    def around(self, trainer: Any, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Calls `train`, watched where it is the first; one inside another is part of it."""
        if self._running:
            return original(trainer, *args, **kwargs)
        self._running = True
        try:
            if self._job.stop_after is None or self._job.kind == "probe":
                return self._chosen(trainer, functools.partial(original, trainer, *args, **kwargs))
            with self._elsewhere(trainer):
                args, kwargs = resumed(args, kwargs, self._folder)
                return self._chosen(trainer, functools.partial(original, trainer, *args, **kwargs))
        finally:
            self._running = False

    def _chosen(self, trainer: Any, train: Callable[[], Any]) -> Any:
        inside = begun(self._job, self._started)
        if inside is None:
            return self._unwatched(trainer, train)
        return self._watched(inside, trainer, train)

    @contextlib.contextmanager
    def _elsewhere(self, trainer: Any) -> Iterator[None]:
        """Checkpoints of a training that is not run to its end go to a scratch folder, and none of
        the user's own are rotated away for them. What a probe saves is removed after it."""
        self._folder = trainer.args.output_dir
        trainer.args.output_dir = str(Path(self._job.scratch_dir) / "trainer")
        try:
            yield
        finally:
            trainer.args.output_dir = self._folder

    def _unwatched(self, trainer: Any, train: Callable[[], Any]) -> Any:
        """A second training: not recorded, and no longer than the first."""
        if self._job.stop_after is None:
            return train()
        from canary.training.attach.suppress import StopAfter

        self._suppression.uploads(trainer)
        callback = StopAfter(self._job.stop_after, self._suppression.saves)
        trainer.add_callback(callback)
        try:
            return train()
        finally:
            trainer.remove_callback(callback)

    def _watched(self, inside: Inside, trainer: Any, train: Callable[[], Any]) -> Any:
        set_up_torch(self._job)
        if self._job.stop_after is not None:
            self._suppression.uploads(trainer)
        inside.lap("before_training")

        def cut() -> None:
            if self._job.kind == "probe":
                # A probe is always short, and what it saves is removed.
                inside.stop_counting_files()
                return
            self._suppression.saves()
            inside.was_cut()
            state = trainer.state
            # A loop that calls nothing back counts no steps.
            told = f"{state.global_step} of {state.max_steps}"
            inside.notes.append(
                f"ended after step {told if state.global_step else self._job.stop_after}: "
                "later saves, pushes and uploads were suppressed"
            )

        probe = inside.attach(trainer, on_cut=cut)
        try:
            outcome = probe.run(train)
        except BaseException as error:
            inside.leave(describe_failure(error))
            if isinstance(error, StopTraining):
                sys.excepthook = _said_already(error, sys.excepthook)
            raise
        inside.notes += self._suppression.told
        inside.leave(self._described(inside, trainer))
        probe.detach()
        if self._job.kind == "probe":
            self._wait_for_the_end()
        return outcome

    def _wait_for_the_end(self) -> NoReturn:
        """The parent ends a probe that has told everything: what comes after a training is not
        done a second time."""
        for stream in filter(None, (sys.stdout, sys.stderr)):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        time.sleep(END_WAIT_S)
        os._exit(0)

    def _described(self, inside: Inside, trainer: Any) -> Result:
        """The result; where the canary itself fails, that is the record's matter and not the
        user's: the command goes on as if it were alone."""
        try:
            return inside.completed(trainer, self._calls)
        except Exception as error:  # noqa: BLE001 - a stranger's trainer may lack anything
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
    """The arguments of `train` with the newest checkpoint of `folder` by name where they ask for
    the newest: the trainer would look for it in the scratch folder."""
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


def _end_with_parent(job_file: Path) -> None:
    """Nothing trains on when the canary is gone without a word (`kill -9`). One that ended by
    itself has removed the job: what its command left in the background goes on."""
    parent = int(os.environ.get(PARENT, "0"))
    while parent and Path(f"/proc/{parent}").exists():
        time.sleep(PARENT_EVERY_S)
    if parent and Path("/proc").exists() and job_file.is_file():
        os.kill(os.getpid(), signal.SIGTERM)


def _said_already(stop: StopTraining, before: Callable[..., Any]) -> Callable[..., Any]:
    """An excepthook for a training that was ended on purpose: its frames are the canary's own, and
    tell a user nothing."""

    def hook(kind: type[BaseException], error: BaseException, frames: Any) -> None:
        if error is stop:
            _say(str(error))
        else:
            before(kind, error, frames)

    return hook


def _say(text: str) -> None:
    print(f"canary: {text}", file=sys.stderr, flush=True)
