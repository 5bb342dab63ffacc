"""One launch inside its training process: attach the collectors, write rows, write the result.

Used by the worker of `canary run`, by `canary exec` inside a user's command, and by the `Recorder`.
It imports only the training stack: a user's Python may lack the canary's other packages.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from canary.machine.packages import imported_packages
from canary.protocol.heartbeat import leave_pulse
from canary.protocol.job import Job, Result, StepFile, begun_path, leave_unwritten
from canary.record.exact import Calls, Exact
from canary.record.profile import OPERATORS, Window
from canary.record.ranks import rank_path
from canary.record.step_row import Row
from canary.training.anomaly.advanced import RunDetectors
from canary.training.asking.observer import STEPS, Asking
from canary.training.collectors.calls import CallCounts, WrittenFiles
from canary.training.collectors.distributed import describe_distributed, this_rank, world_size
from canary.training.collectors.host import HostMeter
from canary.training.collectors.profiler import StepProfiler
from canary.training.exact.effective import describe_device, describe_training, scales_gradients
from canary.training.exact.signals import ExactSignals, Trained
from canary.training.facts.watching import Watching, watchers_of
from canary.training.look import Look, no_look, signals_of, unmeasured_in
from canary.training.pairs import PAIR

if TYPE_CHECKING:
    from canary.training.loops.trainer import TrainerCollector


KILLED = (
    "the training process was ended from outside before it could finish its record: what it counts "
    "over the whole training is missing"
)
OTHER_MACHINES = "ranks on other machines are not in this record"


def set_up_torch(job: Job) -> None:
    """Set the number of threads, and what this process does in another way."""
    if job.threads is not None:
        torch.set_num_threads(job.threads)
    PAIR.begin(job.variation)


def deterministic_kernels() -> Callable[[], None]:
    """Use kernels that repeat from now on; return what restores the user's.

    Kernels without a deterministic form only warn: the comparison finds out which signals repeat.
    """
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.backends.cudnn.benchmark,
    )
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False

    def restore() -> None:
        enabled, warn_only, benchmark = before
        torch.use_deterministic_algorithms(enabled, warn_only=warn_only)
        torch.backends.cudnn.benchmark = benchmark

    return restore


def claimed_launch(job: Job, started: float) -> TrainingLaunch | None:
    """Claim this job and rank for the calling process, and return its launch. None if another
    training came first, or if nothing can be written: then the training goes on unrecorded."""
    try:
        with rank_path(Path(job.scratch_dir) / "claim", this_rank()[0]).open("x") as stream:
            stream.write(str(os.getpid()))
        return TrainingLaunch(job, started)
    except FileExistsError:
        return None
    except OSError as error:
        leave_unwritten(job, error)
        return None


class TrainingLaunch:
    """The launch of one job in one process; `started` is in the time of `time.perf_counter()`."""

    _files: WrittenFiles
    """Those of the training, from `begin` on."""
    _collector: TrainerCollector
    """That of a trainer, from `attach` on."""

    def __init__(self, job: Job, started: float, *, own_process: bool = False) -> None:
        self.job = job
        self.rank, self.ranks = this_rank()
        self.startup: dict[str, float] = {}
        self.notes: list[str] = []
        self._started = started
        self._own_process = own_process
        self._nodes = leave_pulse(Path(job.scratch_dir), self.rank, self.ranks).nodes
        self._rows = StepFile(rank_path(Path(job.rows_file), self.rank))
        self._unwritten = False
        self._kept: list[Row] = []
        """Rows of the look."""
        self.watch: RunDetectors | None = None
        """The anomaly detectors; None if the training ends after the look."""
        self.look = no_look()
        self.calls: CallCounts | None = None
        """Counts calls of libraries, if they are loaded."""
        self._exact: Exact = {}
        self.unseen: dict[str, str] = {}
        """What the look did not show, and why."""
        self._begun_on: torch.device | None = None
        self._training: dict[str, Any] = {}
        self._packages: dict[str, str] = {}
        """What the training has imported by the end of its look."""
        self._profiler: StepProfiler | None = None
        self._host = HostMeter(own_process)
        self._watching: Watching | None = None

    def lap(self, name: str) -> None:
        """Store the time since the last lap as this part of the start-up."""
        self.startup[name] = time.perf_counter() - self._started - sum(self.startup.values())

    def attach(self, trainer: Any) -> TrainerCollector:
        """Put the collectors on a trainer that is about to train."""
        # Imported here, because loops without transformers use the rest of this class.
        from canary.training.loops.trainer import TrainerCollector

        job = self.job
        look = self.begin(trainer, describe_training(trainer))
        PAIR.vary(trainer, Path(job.rows_file).parent)
        self._collector = TrainerCollector(
            trainer,
            self.keep,
            job.launch,
            look=look,
            stop_after=job.stop_after,
            ends_after_look=job.exact,
            profiler=self.profiler(torch.device(trainer.args.device)),
        )
        return self._collector

    def profiler(self, device: torch.device) -> StepProfiler | None:
        """Return the profiler of a window of steps, if the job asks for one; only on rank 0."""
        if self.job.profile is not None and self.rank == 0:
            self._profiler = StepProfiler(Window(**self.job.profile), device)
        return self._profiler

    def begin(self, trained: Trained, training: dict[str, Any]) -> Look:
        """Start collecting for a training with the settings `training`. Return its look."""
        self._training = training
        if not self.job.exact:
            self.watch = RunDetectors(
                Path(self.job.rows_file).parent,
                self.job.launch,
                rank=self.rank,
                ranks=self.ranks,
                scaled_gradients=scales_gradients(training),
                stop_on=self.job.stop_on,
            )
        scratch = Path(self.job.scratch_dir)
        own = (scratch / "trainer", scratch / f"rank{self.rank}" / "trainer")  # its output_dir
        self._files = WrittenFiles(_canary_files(self.job, self.rank), own)
        if self.job.look_steps:
            exact = ExactSignals(trained, whole_process=self._own_process)
            over = functools.partial(self._look_over, trained)
            self.look = Look(self.job.look_steps, exact, over)
            if self._own_process and torch.cuda.is_available():
                self.look.at_end(deterministic_kernels())
            asking = Asking(trained, again=self.job.asks_again)
            self.look.leaves_out(asking.tensors)
            self._watching = Watching([*watchers_of(trained), asking])
            self._watching.begin()
            self.look.at_end(self._watching.end)
        self._files.begin()
        if not self.job.look_steps:
            self._packages = imported_packages()
            self._time_begins()
        return self.look

    def _time_begins(self) -> None:
        if not self.job.exact and self.rank == 0:
            self._host.begin()

    def _look_over(self, trained: Trained, exact: ExactSignals) -> None:
        """Keep what the look saw; the steps that follow are timed."""
        rows, self._kept = self._kept, []
        made = exact.contain(lambda: signals_of(exact, rows, trained, self._counted()))
        self._exact = made or {}
        if made and self._watching is not None and (facts := self._watching.told(self._exact)):
            self._exact["facts"] = facts
        self.unseen = unmeasured_in(exact)
        self._packages = imported_packages()
        if self._begun_on is not None:
            self.begun(trained, self._begun_on)
        self._time_begins()

    def _counted(self) -> Calls:
        """Return the counts of the training so far."""
        counted: Calls = self._files.so_far()
        if self.calls is not None:
            counted = {**self.calls.describe(), **counted}
        if world_size() > 1:
            # All ranks write to one log, so no rank knows its part of the bytes.
            counted["bytes_written"] = None
        return counted

    def learned(self, arguments: dict[str, Any], dtype: str | None) -> None:
        """Add settings that a loop showed after its beginning."""
        self._training["arguments"] |= arguments
        if dtype is not None:
            self._training["dtype"] = dtype

    def begun(self, trained: Trained, device: torch.device) -> None:
        """Write what is known after the first step, and again after the look, for a process that
        another one may kill."""
        self._begun_on = device
        result = replace(self._so_far(trained, device), notes=(*self.notes, KILLED))
        path = begun_path(Path(self.job.result_file))
        try:
            result.write(rank_path(path, self.rank))
            self._files.leave_out(rank_path(path, self.rank).stat().st_size)
        except OSError as error:
            leave_unwritten(self.job, error)

    def _so_far(self, trained: Trained, device: torch.device) -> Result:
        distributed = describe_distributed(trained)
        return Result(
            status="completed",
            startup_seconds=self.startup,
            device=describe_device(device, self._training["dtype"]),
            exact=self._exact,
            training=self._training | {"distributed": distributed},
            packages=self._packages,
            notes=tuple(self.notes),
        )

    def discard(self) -> None:
        """Release this job and rank for another training, which is recorded in its place."""
        self.close()
        self._files.end()
        rank_path(Path(self.job.scratch_dir) / "claim", self.rank).unlink(missing_ok=True)

    def close(self) -> None:
        """Stop all that measures."""
        if self._profiler is not None:
            self._profiler.give_up()
        self.look.give_up()
        STEPS.remove()  # the look of a training that failed tells nothing
        self._host.stop()

    def was_cut(self, step: int) -> None:
        """Record that the training was cut short."""
        self._training["cut"] = True
        self.notes.append(f"the canary ended the process after step {step}")

    def keep(self, row: Row) -> None:
        """Write the row of a step.

        Raises:
            StopTraining: an alert ends the training.
        """
        gil_held = self._host.gil_held()
        if gil_held is not None:
            row["host"]["gil_held"] = gil_held
        stop = self.watch.judge(row) if self.watch is not None else None
        self._append(row)
        if row.get("look"):
            self._kept.append(row)
        if stop is not None:
            raise stop

    def _append(self, row: Row) -> None:
        """Append a row. In a user's process a full disk ends only the recording."""
        if self._unwritten:
            return
        try:
            self._rows.append(row)
        except OSError as error:
            if self._own_process:
                raise
            self._unwritten = True
            leave_unwritten(self.job, error)

    def completed(self, trainer: Any) -> Result:
        """Return the result of a finished trainer. Without any step it failed."""
        reason = self._collector.why_no_step()
        if reason is not None:
            hint = "call callback_handler.on_step_end in your loop, or use canary.Recorder"
            return Result(status="failed", reason=reason, hint=hint, usage_error=True)
        done = trainer.state.global_step
        if done and not self._collector.steps:
            self._training["resumed_at"] = done
            words = (
                f"the training had no step left: it resumed at step {done} "
                f"of {trainer.state.max_steps}"
            )
            self.notes.append(words)
        result = self.finished(trainer, torch.device(trainer.args.device))
        return replace(result, unmeasured={**result.unmeasured, **self._collector.unmeasured()})

    def finished(self, trained: Trained, device: torch.device) -> Result:
        """Return the result of a finished training."""
        host = self._host.end()
        counted = self._counted()
        self._files.end()
        self.lap("training")
        return replace(
            self._so_far(trained, device),
            calls=counted,
            unmeasured=self._host.unmeasured | self.unseen,
            wall_seconds=time.perf_counter() - self._started,
            host=host,
            not_varied=PAIR.why_not(),
        )

    def write(self, result: Result) -> None:
        """Write the result for the parent."""
        result = replace(result, packages=self._packages or imported_packages())
        self.close()
        if self._nodes > 1:
            result = replace(result, notes=(*result.notes, OTHER_MACHINES))
        try:
            result.write(rank_path(Path(self.job.result_file), self.rank))
        except OSError as error:
            if self._own_process:
                raise
            leave_unwritten(self.job, error)


def _canary_files(job: Job, rank: int) -> tuple[Path, ...]:
    """Return the files that the canary itself writes during the training."""
    run_dir = Path(job.rows_file).parent
    found = [run_dir / name for name in ("steps.jsonl", "alerts.jsonl", "log.txt")]
    found += [rank_path(Path(job.rows_file), rank), Path(job.result_file).parent]
    found.append(Path(job.cache_dir))
    if job.profile is not None:
        window = Window(**job.profile)
        found += [Path(window.folder), Path(window.folder) / OPERATORS, Path(window.trace)]
    return tuple(dict.fromkeys(found))
