"""Sends the rows and the result of a loop to the job of `canary exec`."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import replace
from pathlib import Path

from canary.protocol.failure import describe_failure
from canary.protocol.job import JOB, Job, Result
from canary.record.step_row import Row
from canary.training.attach.process import TURN, leave, say, wait_for_the_end
from canary.training.collectors.calls import can_count_calls, count_calls
from canary.training.collectors.profiler import StepProfiler
from canary.training.launch import TrainingLaunch, claimed_launch, set_up_torch
from canary.training.look import Look
from canary.training.recorder.collector import LoopCollector
from canary.training.recorder.loop import Loop


def process_started() -> float:
    """Return when this process began, in the time of `time.perf_counter()`."""
    import psutil  # a user's Python may lack it

    return time.perf_counter() - (time.time() - psutil.Process().create_time())


def is_failure(error: BaseException | None) -> bool:
    """Whether a loop that ended by `error` failed. `sys.exit()` without a code is no failure."""
    return error is not None and not (isinstance(error, SystemExit) and not error.code)


class JobKeeper:
    """Stores the rows and the result of one loop for the job of `canary exec`."""

    written = False
    """Whether the result is written."""
    exits = False
    """Whether the process itself ends."""

    def __init__(self, job: Job, training: TrainingLaunch) -> None:
        self.launch = job.launch
        self.stop_after = job.stop_after
        """Steps after which recording ends; None for all steps."""
        self._job = job
        self._training = training
        self._stack = contextlib.ExitStack()

    def begin(self, loop: Loop) -> Look:
        """Begin the loop, and return its look."""
        set_up_torch(self._job)
        self._loop = loop
        if can_count_calls():
            self._training.calls = self._stack.enter_context(count_calls())
        self._training.lap("before_training")
        return self._training.begin(loop, loop.describe())

    def profiler(self) -> StepProfiler | None:
        """Return the job's profiler."""
        return self._training.profiler(self._loop.device)

    def keep(self, row: Row) -> None:
        """Append to the job's file of rows."""
        self._training.keep(row)

    def _result(self, collector: LoopCollector) -> Result:
        if not collector.steps:
            return Result(
                status="failed",
                reason=self._loop.why_no_step(collector.begun),
                hint="put each step of the loop into: with recorder.step(batch) as step",
                usage_error=True,
            )
        result = self._training.finished(self._loop, self._loop.device)
        unmeasured = result.unmeasured | self._loop.unmeasured() | collector.unmeasured()
        return replace(result, unmeasured=unmeasured)

    def step_ended(self, collector: LoopCollector) -> None:
        """End a loop that is only looked at."""
        if self._job.exact and collector.steps == self.stop_after:
            self.end(collector, None)

    def past_end(self, collector: LoopCollector) -> None:
        """End the process of a loop that goes on."""
        steps = collector.steps
        if not self.written:
            self._training.was_cut(steps)
        self.end(collector, None)
        leave(f"ended after step {steps}; what comes after the loop does not run")

    def end(self, collector: LoopCollector, error: BaseException | None) -> None:
        """Write the result for the parent, once. It then ends a process that is only looked at, and
        that does not end by itself."""
        if self.written:
            return
        self.written = True
        with self._stack:
            if error is not None and is_failure(error):
                collector.give_up()
                self._training.write(describe_failure(error))
                return
            collector.stop()
            self._training.write(replace(self._result(collector), exits=self.exits))
        if self._job.exact and collector.steps and not self.exits:
            wait_for_the_end()


def job_keeper() -> JobKeeper | None:
    """Return the keeper of a loop under `canary exec`; None outside of it, and for a later loop. If
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
    launch = claimed_launch(job, process_started())
    if launch is None:
        if job.stop_after is not None:
            leave("one training was recorded; the next one does not run")
        return None
    launch.notes += TURN.notes
    return JobKeeper(job, launch)
