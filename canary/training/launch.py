"""One launch seen from inside its training process: attach the probes, train, leave the result.

Shared by the worker of `canary run`, by what `canary exec` puts into a user's own command, and by
the `Recorder`. Imports nothing that a Python with a training stack alone does not have.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from canary.protocol.heartbeat import leave_pulse
from canary.protocol.job import NODE_RANK, Job, Result, leave_unwritten
from canary.protocol.rows import StepFile
from canary.record.exact import Calls, Exact
from canary.record.jsonio import read_rows
from canary.record.profile import OPERATORS, Window
from canary.record.ranks import rank_path
from canary.record.step_row import Row
from canary.training.anomaly.measured_launch import RunDetectors
from canary.training.collectors.calls import CallCounts, WrittenFiles
from canary.training.collectors.distributed import (
    describe_distributed,
    not_as_asked,
    of_every_rank,
    world_size,
)
from canary.training.collectors.host import HostMeter
from canary.training.collectors.profiler import StepProfiler
from canary.training.exact.fingerprints import describe_data
from canary.training.exact.signals import ExactSignals, Trained
from canary.training.exact.trainer_settings import (
    describe_device,
    describe_training,
    scales_gradients,
)

if TYPE_CHECKING:
    from canary.training.loops.trainer import TrainerCollector


def set_up_torch(job: Job) -> None:
    """Threads as asked; in the probe, deterministic kernels."""
    if job.threads is not None:
        torch.set_num_threads(job.threads)
    if job.kind == "probe":
        # Kernels without a deterministic form warn into the log and stay: the comparison finds
        # out by itself which signals repeat.
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.benchmark = False


def claim(job: Job) -> None:
    """The first training of this job and rank is recorded.

    Raises:
        FileExistsError: another was there before.
        OSError: nothing can be written.
    """
    rank = int(os.environ.get("RANK", "0"))
    path = rank_path(Path(job.scratch_dir) / "claim", rank)
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(str(os.getpid()))


def begun(job: Job, started: float) -> Inside | None:
    """The launch of a job that a user's process is to record; None where another training was
    first, or where nothing can be written: that is not the training's matter."""
    try:
        claim(job)
        return Inside(job, started)
    except FileExistsError:
        return None
    except OSError as error:
        leave_unwritten(job, error)
        return None


class Inside:
    """The launch of one job in one process; `started` is a reading of `time.perf_counter()`."""

    def __init__(
        self,
        job: Job,
        started: float,
        rank: int | None = None,
        *,
        own_process: bool = False,
    ) -> None:
        self.job = job
        self.rank = int(os.environ.get("RANK", "0")) if rank is None else rank
        self.startup: dict[str, float] = {}
        self.notes: list[str] = []
        self.tell: Callable[[Row], None] | None = None
        """Also gets each row, in the time of the logging phase."""
        self._started = started
        self._own_process = own_process
        self._pulse = leave_pulse(Path(job.scratch_dir), self.rank)
        self._rows = StepFile(rank_path(Path(job.rows_file), self.rank))
        self._unwritten = False
        self._kept: list[Row] = []
        self.watch: RunDetectors | None = None
        """In a measured launch, what looks for anomalies."""
        self._exact: ExactSignals | None = None
        self._probe: TrainerCollector | None = None
        self._files: WrittenFiles | None = None
        self._written: Calls = {}
        self._training: dict[str, Any] = {}
        self._profiler: StepProfiler | None = None
        self._host = HostMeter(own_process)

    def lap(self, name: str) -> None:
        """What passed since the last lap is this part of the start-up."""
        self.startup[name] = time.perf_counter() - self._started - sum(self.startup.values())

    def attach(self, trainer: Any, on_cut: Callable[[], None] | None = None) -> TrainerCollector:
        """Puts the probes on a trainer that is about to train."""
        # Here, because a loop without transformers uses the rest of this class.
        from canary.training.loops.trainer import TrainerCollector

        job = self.job
        exact = self.begin(trainer, describe_training(trainer))
        self._probe = TrainerCollector(
            trainer,
            self.keep,
            job.launch,
            stop_after=job.stop_after,
            exact=exact,
            on_cut=on_cut,
            profiler=self.profiler(torch.device(trainer.args.device)),
            watch=self.watch,
        )
        return self._probe

    def profiler(self, device: torch.device) -> StepProfiler | None:
        """What profiles a window of the steps, where the job asks for it: the first rank's."""
        if self.job.profile is not None and self.rank == 0:
            self._profiler = StepProfiler(Window(**self.job.profile), device)
        return self._profiler

    def begin(self, trained: Trained, training: dict[str, Any]) -> ExactSignals | None:
        """A training is about to begin, described as `training`; in the probe, returns what looks
        at it closely."""
        self._training = training
        if self.job.kind == "measured":
            self.watch = RunDetectors(
                Path(self.job.rows_file).parent,
                self.job.launch,
                rank=self.rank,
                ranks=int(os.environ.get("WORLD_SIZE", "1")),
                scaled_gradients=scales_gradients(training),
                stop_on=self.job.stop_on,
            )
        self._exact = ExactSignals(trained) if self.job.kind == "probe" else None
        self._files = WrittenFiles(leave_out=_own_files(self.job, self.rank))
        self._files.begin()
        if self.job.kind == "measured" and self.rank == 0:
            self._host.begin()
        return self._exact

    def was_cut(self) -> None:
        """The training is ended before its own end."""
        self._training["cut"] = True

    def stop_counting_files(self) -> None:
        """What is written from here on is no part of the training: a probe is cut."""
        if self._files is not None:
            self._written = self._files.end()

    def keep(self, row: Row) -> None:
        """Writes the row of a step.

        Raises:
            StopTraining: what is seen in it is to end the training.
        """
        held = self._host.gil_held()
        if held is not None:
            row["host"]["gil_held"] = held
        stop = self.watch.judge(row) if self.watch is not None else None
        self._append(row)
        if self.tell is not None:
            self.tell(row)
        if self.job.kind == "probe":
            self._kept.append(row)
        if stop is not None:
            raise stop

    def _append(self, row: Row) -> None:
        """In a user's process, a disk that is full is the record's matter alone."""
        if self._unwritten:
            return
        try:
            self._rows.append(row)
        except OSError as error:
            if self._own_process:
                raise
            self._unwritten = True
            leave_unwritten(self.job, error)

    def completed(self, trainer: Any, calls: CallCounts) -> Result:
        """What the finished training of a trainer leaves: never a success without a step."""
        assert self._probe is not None  # attach came first
        reason = self._probe.why_no_step()
        if reason is not None:
            hint = "call callback_handler.on_step_end in its loop, or use canary.Recorder"
            return Result(status="failed", reason=reason, hint=hint, usage_error=True)
        done = trainer.state.global_step
        if done and not self._probe.steps:
            self._training["resumed_at"] = done
            words = (
                f"no step was left to train: it resumed at step {done} of {trainer.state.max_steps}"
            )
            self.notes.append(words)
        result = self.finished(trainer, torch.device(trainer.args.device), calls)
        return replace(result, unmeasured={**result.unmeasured, **self._probe.unmeasured()})

    def finished(self, trained: Trained, device: torch.device, calls: CallCounts | None) -> Result:
        """What a finished training leaves."""
        assert self._files is not None  # begin came first
        host = self._host.end() if self.job.kind == "measured" and self.rank == 0 else {}
        written = self._written or self._files.end()
        counted: Calls = {**written}
        if calls is not None:
            counted = {**calls.describe(), **written}
        if world_size() > 1:
            # The ranks share a log, and no rank can tell its own part of it.
            counted["bytes_written"] = None
        self.lap("training")
        found: Exact = {}
        if self._exact is not None:
            self._exact.add_rows(self._kept)
            found = {
                "steps": len(self._kept),
                "data": describe_data(trained),
                **self._exact.found,
                "calls": counted,
            }
        distributed = describe_distributed(trained)
        self.notes += not_as_asked(distributed)
        return Result(
            status="completed",
            exact=found,
            calls=counted,
            startup_seconds=self.startup,
            device=describe_device(device, self._training["dtype"]),
            training=self._training | {"distributed": distributed},
            notes=tuple(self.notes),
            unmeasured=self._host.unmeasured,
            wall_seconds=time.perf_counter() - self._started,
            host=host,
        )

    def leave(self, result: Result) -> None:
        """Writes the result where the parent looks for it, and closes the rows."""
        if self._profiler is not None:
            self._profiler.give_up()
        self._rows.close()
        self._host.stop()
        if result.status == "completed" and self._pulse.nodes > 1 and world_size() > 1:
            result = self._gathered(result)
        try:
            result.write(rank_path(Path(self.job.result_file), self.rank))
        except OSError as error:
            if self._own_process:
                raise
            leave_unwritten(self.job, error)

    def _gathered(self, result: Result) -> Result:
        """One machine writes down what the ranks of the others have; they learn which.

        It is the first by `--node-rank` or else by name, the same in each launch: which machine has
        rank 0 is torchrun's choice, anew each time.
        """
        rows_file = rank_path(Path(self.job.rows_file), self.rank)
        rows = [row for row in read_rows(rows_file) if row["launch"] == self.job.launch]
        place = {
            "node_rank": int(os.environ.get(NODE_RANK, "0")),
            "host": socket.gethostname(),
            "run_dir": str(rows_file.parent),
        }
        everyone = of_every_rank(place | {"rows": rows, "result": asdict(result)})
        machines = [(one["node_rank"], one["host"], one["run_dir"]) for one in everyone]
        main, own = min(machines), machines[self.rank]
        if own != main:
            note = (
                f"{machines.count(own)} of {len(machines)} ranks ran here; the record of all is "
                f"{main[2]} on {main[1]}"
            )
            return replace(result, notes=(*result.notes, note))
        if self.rank == machines.index(main):
            for rank, one in enumerate(everyone):
                if machines[rank] != main:
                    self._keep_far(rank, one)
        return result

    def _keep_far(self, rank: int, one: dict[str, Any]) -> None:
        """A rank of another machine, as if it had run on this one."""
        rows = StepFile(rank_path(Path(self.job.rows_file), rank))
        for row in one["rows"]:
            rows.append(row)
        rows.close()
        Result(**one["result"]).write(rank_path(Path(self.job.result_file), rank))


def _own_files(job: Job, rank: int) -> tuple[Path, ...]:
    """Files that the canary itself writes while it trains."""
    run_dir = Path(job.rows_file).parent
    names = ("steps.jsonl", "probe_steps.jsonl", "alerts.jsonl", "log.txt")
    rows = rank_path(Path(job.rows_file), rank)
    profile = () if job.profile is None else _profile_files(Window(**job.profile))
    return (*{*(run_dir / name for name in names), rows}, Path(job.cache_dir), *profile)


def _profile_files(window: Window) -> tuple[Path, ...]:
    return Path(window.folder), Path(window.folder) / OPERATORS, Path(window.trace)
