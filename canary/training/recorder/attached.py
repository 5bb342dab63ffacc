"""Where the rows and the result of a loop go: to the job of a `canary exec`."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Protocol

import psutil

from canary.protocol.failure import describe_failure
from canary.protocol.job import JOB, Job, Result
from canary.record.step_row import Row
from canary.training.anomaly.measured_launch import RunDetectors
from canary.training.collectors.calls import can_count_calls, count_calls
from canary.training.collectors.profiler import StepProfiler
from canary.training.exact.signals import ExactSignals
from canary.training.launch import Inside, begun, set_up_torch
from canary.training.recorder.loop import Loop
from canary.training.recorder.probe import LoopCollector


class Keeper(Protocol):
    """Keeps what one loop leaves."""

    launch: int
    stop_after: int | None
    """Steps after which the loop is to end; None for all of it."""

    def begins(self, loop: Loop) -> ExactSignals | None:
        """The loop begins; returns what looks at its first steps closely, where it does."""

    def profiler(self) -> StepProfiler | None:
        """What profiles some of its steps; asked for once, after `begins`."""

    def watch(self) -> RunDetectors | None:
        """What looks for anomalies; asked for once, after `begins`."""

    def keep(self, row: Row) -> None:
        """A step's row."""

    def step_ended(self, probe: LoopCollector) -> None:
        """A step has ended."""

    def past_end(self) -> None:
        """The loop goes on past the steps that it was to have."""

    def ends(self, probe: LoopCollector, error: BaseException | None) -> None:
        """The loop has ended, well or with an error."""


def process_started() -> float:
    """When this process began, as a reading of `time.perf_counter()`."""
    return time.perf_counter() - (time.time() - psutil.Process().create_time())


def is_failure(error: BaseException | None) -> bool:
    """Whether a loop left by this ended badly; `sys.exit()` without a code is an end like any."""
    return error is not None and not (isinstance(error, SystemExit) and not error.code)


class JobKeeper:
    """The launch of a job of `canary exec`: measured, or the probe."""

    def __init__(self, job: Job, inside: Inside) -> None:
        self.launch = job.launch
        self.stop_after = job.stop_after
        self._job = job
        self._inside = inside
        self._stack = contextlib.ExitStack()
        self._told = False

    def begins(self, loop: Loop) -> ExactSignals | None:
        """In the probe with deterministic kernels."""
        self._loop = loop
        if self.stop_after is not None and sys.modules.get("transformers") is not None:
            from canary.training.attach.suppress import Suppression

            Suppression(_say if self._job.kind == "measured" else None).pushes()
        set_up_torch(self._job)
        self._calls = self._stack.enter_context(count_calls()) if can_count_calls() else None
        self._inside.lap("before_training")
        return self._inside.begin(loop, loop.describe())

    def profiler(self) -> StepProfiler | None:
        """As the job says."""
        return self._inside.profiler(self._loop.device)

    def watch(self) -> RunDetectors | None:
        """In the measured launch."""
        return self._inside.watch

    def keep(self, row: Row) -> None:
        """To the job's file of rows."""
        self._inside.keep(row)

    def step_ended(self, probe: LoopCollector) -> None:
        """At the last step that is recorded, what saves transformers' models does so no more; what
        a probe saves is removed after it."""
        if (
            self._job.kind == "measured"
            and probe.steps == self.stop_after
            and sys.modules.get("transformers") is not None
        ):
            from canary.training.attach.suppress import Suppression

            Suppression(_say).saves()

    def past_end(self) -> None:
        """The probe is nobody's training: it ends here. A measured loop is only told so."""
        if self._job.kind == "probe":
            raise SystemExit(0)
        if not self._told:
            _say(
                f"{self.stop_after} steps are recorded and the loop goes on; to end it, iterate "
                "over recorder.batches(loader), or break on recorder.done"
            )
            self._told = True

    def ends(self, probe: LoopCollector, error: BaseException | None) -> None:
        """Leaves the result for the parent."""
        with self._stack:
            if error is not None and is_failure(error):
                probe.give_up()
                self._inside.leave(describe_failure(error))
                return
            probe.stop()
            if probe.exact is not None:
                probe.exact.training_ended()
            self._inside.leave(self._result(probe))

    def _result(self, probe: LoopCollector) -> Result:
        if not probe.steps:
            return Result(
                status="failed",
                reason=self._loop.why_no_step(probe.begun),
                hint="put each step of the loop into: with recorder.step(batch) as step",
                usage_error=True,
            )
        result = self._inside.finished(self._loop, self._loop.device, self._calls)
        unmeasured = self._loop.unmeasured() | probe.unmeasured()
        return Result(**vars(result) | {"unmeasured": unmeasured})


class NoKeeper:
    """A loop that is not recorded: not the first of its command, or not the first rank."""

    launch = 0

    def __init__(self, stop_after: int | None) -> None:
        self.stop_after = stop_after

    def begins(self, loop: Loop) -> None:
        """Nothing looks at it."""

    def profiler(self) -> None:
        """None of it is profiled."""

    def watch(self) -> None:
        """None of it is looked at."""

    def keep(self, row: Row) -> None:
        """Not kept."""

    def step_ended(self, probe: LoopCollector) -> None:
        """Not told."""

    def past_end(self) -> None:
        """Not told."""

    def ends(self, probe: LoopCollector, error: BaseException | None) -> None:
        """The optimizers are left as they were."""
        probe.detach()


def job_keeper() -> JobKeeper | NoKeeper | None:
    """The keeper of a loop under `canary exec`; None outside of it."""
    file = os.environ.get(JOB)
    if file is None:
        return None
    try:
        job = Job.read(Path(file))
    except OSError:  # the run's folder was removed: nothing is recorded
        return NoKeeper(None)
    inside = begun(job, process_started())
    return NoKeeper(job.stop_after) if inside is None else JobKeeper(job, inside)


def _say(text: str) -> None:
    print(f"canary: {text}", file=sys.stderr, flush=True)


def this_rank() -> int:
    """Of the processes of one training, as torchrun numbers them."""
    return int(os.environ.get("RANK", "0"))
