"""One launch seen from inside its training process: attach the probes, train, leave the result.

Shared by the worker of `canary run`, by what `canary exec` puts into a user's own command, and by
the `Recorder`. Imports nothing that a Python with a training stack alone does not have.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from canary.collect.probes.calls import CallCounts, WrittenFiles
from canary.collect.probes.exact import ExactProbe
from canary.collect.probes.fingerprints import describe_data
from canary.collect.probes.settings import describe_device, describe_training
from canary.collect.probes.trainer import TrainerProbe
from canary.runner.base import Job, Result, rank_path
from canary.runner.rows import RowFile


def set_up_torch(job: Job) -> None:
    """Threads as asked; in the probe, deterministic kernels."""
    import torch

    if job.threads is not None:
        torch.set_num_threads(job.threads)
    if job.kind == "probe":
        # Kernels without a deterministic form warn into the log and stay: the comparison finds
        # out by itself which signals repeat.
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.benchmark = False


class Inside:
    """The launch of one job in one process; `started` is a reading of `time.perf_counter()`."""

    def __init__(self, job: Job, started: float, rank: int | None = None) -> None:
        self.job = job
        self.rank = int(os.environ.get("RANK", "0")) if rank is None else rank
        self.startup: dict[str, float] = {}
        self.notes: list[str] = []
        self._started = started
        self._rows = RowFile(rank_path(Path(job.rows_file), self.rank))
        self._kept: list[dict[str, Any]] = []
        self._exact: ExactProbe | None = None
        self._files: WrittenFiles | None = None
        self._training: dict[str, Any] = {}

    def lap(self, name: str) -> None:
        """What passed since the last lap is this part of the start-up."""
        self.startup[name] = time.perf_counter() - self._started - sum(self.startup.values())

    def attach(self, trainer: Any, on_cut: Callable[[], None] | None = None) -> TrainerProbe:
        """Puts the probes on a trainer that is about to train."""
        job = self.job
        self._training = describe_training(trainer)
        self._exact = ExactProbe(trainer) if job.kind == "probe" else None
        probe = TrainerProbe(
            trainer,
            self._keep,
            job.launch,
            stop_after=job.stop_after,
            exact=self._exact,
            on_cut=on_cut,
        )
        self._files = WrittenFiles(leave_out=_own_files(job))
        self._files.begin()
        return probe

    def _keep(self, row: dict[str, Any]) -> None:
        self._rows.append(row)
        if self.job.kind == "probe":
            self._kept.append(row)

    def completed(self, trainer: Any, calls: CallCounts) -> Result:
        """What the finished training leaves."""
        assert self._files is not None  # attach came first
        counted = {**calls.describe(), **self._files.end()}
        self.lap("training")
        found: dict[str, Any] = {}
        if self._exact is not None:
            self._exact.add_rows(self._kept)
            found = {
                "steps": len(self._kept),
                "data": describe_data(trainer),
                **self._exact.found,
                "calls": counted,
            }
        return Result(
            status="completed",
            exact=found,
            calls=counted,
            startup_seconds=self.startup,
            device=describe_device(trainer, self._training["dtype"]),
            training=self._training,
            notes=tuple(self.notes),
            wall_seconds=time.perf_counter() - self._started,
        )

    def leave(self, result: Result) -> None:
        """Writes the result where the parent looks for it, and closes the rows."""
        self._rows.close()
        result.write(rank_path(Path(self.job.result_file), self.rank))


def _own_files(job: Job) -> tuple[Path, ...]:
    """Files that the canary itself writes while it trains."""
    run_dir = Path(job.rows_file).parent
    names = ("steps.jsonl", "probe_steps.jsonl", "log.txt")
    return (*(run_dir / name for name in names), Path(job.cache_dir))
