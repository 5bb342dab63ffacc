"""A loop of the test's own process under a Recorder, with the job that `canary exec` gives it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

from canary import Recorder
from canary.config.spans import warmup_steps
from canary.protocol.job import JOB, Job, Result
from canary.protocol.record_writer import RecordWriter
from canary.protocol.trainer_config import as_config
from canary.record.folder import RunFolder, new_run_id
from canary.record.profile import Window
from canary.record.step_row import Row
from canary.record.types import RunRecord


class Writer(RecordWriter):
    """Sums a run up, as the process does that watches a command."""

    def warmup(self, rows: Sequence[Row]) -> int:
        return warmup_steps(sum(bool(row.get("look")) for row in rows), len(rows))


class Recording:
    """One recorded loop."""

    def __init__(
        self,
        folder: Path,
        look_steps: int = 0,
        max_steps: int | None = None,
        profiled: tuple[int, int] | None = None,
        stop_on: Any = None,
    ) -> None:
        """`profiled`: the first profiled step, and their number."""
        folder.mkdir(parents=True, exist_ok=True)
        self.run = RunFolder.create(folder, new_run_id("loop", datetime.now(UTC)))
        place = self.run.path
        self.window: Window | None = None
        if profiled is not None:
            (place / "profiler").mkdir()
            files = str(place / "profiler"), str(place / "profiler" / "trace.json")
            self.window = Window(*profiled, *files)
        self.run.scratch.mkdir(exist_ok=True)
        scratch = str(self.run.scratch)
        self.job = Job(
            launch=0,
            config_file=str(self.run.config),
            rows_file=str(self.run.steps),
            result_file=str(self.run.scratch / "result.json"),
            scratch_dir=scratch,
            cache_dir=scratch,
            rows_dir=scratch,
            look_steps=look_steps,
            stop_after=max_steps,
            profile=None if self.window is None else asdict(self.window),
            stop_on=stop_on,
        )

    @contextlib.contextmanager
    def of(self, name: str = "loop", **parts: Any) -> Iterator[Recorder]:
        """Record a loop."""
        file = self.run.scratch / "job.json"
        self.job.write(file)
        kept = {name: os.environ[name] for name in os.environ if name not in ("RANK", "WORLD_SIZE")}
        with mock.patch.dict(os.environ, {**kept, JOB: str(file)}, clear=True):
            recorder = Recorder(name, **parts)
            with recorder:
                yield recorder

    def record(self) -> RunRecord:
        """The record of the loop."""
        result = Result.read(Path(self.job.result_file))
        assert result is not None
        writer = Writer(self.run, "loop", as_config(result.training) if result.training else {})
        writer.describe_machine()
        writer.add_launch(0)
        rows = writer.rows_so_far()
        writer.close_launch(0, result, len(rows))
        writer.keep_result(result)
        if self.window is not None:
            writer.keep_profile(self.window, rows[-1]["step"] if rows else None)
        return writer.finish(result)
