"""The writer of a run's record, for a run that is watched and for one that is imported."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from canary.machine.environment import fingerprint, git_state
from canary.protocol.job import Result
from canary.record.bottlenecks import find_bottlenecks
from canary.record.curves import ungated
from canary.record.folder import RunFolder, close_launches, start_record
from canary.record.profile import Window
from canary.record.profile_folder import keep_profile
from canary.record.ranks import RankSteps, merged_rows
from canary.record.step_row import Row
from canary.record.summary import summarise_ranks
from canary.record.types import Launch, RunRecord


class RecordWriter(ABC):
    """Fills in machine and launches, summarises the rows on disk, and updates `metrics.json`."""

    def __init__(self, folder: RunFolder, name: str, config: Mapping[str, Any]) -> None:
        self.folder = folder
        self._rows = RankSteps(folder.steps)
        self._started = time.monotonic()
        self.record: RunRecord = start_record(
            folder.path.name, name, datetime.now(UTC), dict(config)
        )

    def describe_machine(self) -> None:
        """Fill in environment and git state; this takes some tenths of a second."""
        self.record = self.record.model_copy(
            update={"env": fingerprint(), "git": git_state(Path.cwd())}
        )

    def add_launch(self, index: int) -> None:
        """Add a launch that begins."""
        self.record.launches.append(Launch(index=index, status="running"))

    def close_launch(self, index: int, result: Result, steps: int) -> None:
        """Close a launch that ended after `steps` steps, successfully or not."""
        place = next(n for n, one in enumerate(self.record.launches) if one.index == index)
        began = result.startup_seconds.items()
        self.record.launches[place] = self.record.launches[place].model_copy(
            update={
                "status": result.status,
                "steps": steps,
                "startup_seconds": {name: value for name, value in began if name != "training"},
                "wall_seconds": result.wall_seconds,
                "host": result.host,
            }
        )

    def keep_result(self, result: Result) -> None:
        """Keep a launch's result."""
        record = self.record
        if result.exact and not record.exact:
            record.exact.update(result.exact)
        elif result.exact:
            record.further_looks.append(result.exact)
        record.io.update(result.calls)
        record.perf.startup_seconds = record.launches[-1].startup_seconds
        if result.device:
            record.env["device"] = result.device
        if result.packages:
            record.env["packages"] = {**result.packages}
        record.unmeasured.update(result.unmeasured)
        record.notes += [note for note in result.notes if note not in record.notes]

    def keep_profile(self, window: Window, last: int | None, first: int | None = 1) -> None:
        """Keep the profile of a launch that completed the steps `first` to `last`."""
        keep_profile(self.record, self.folder.path, window, last, first)

    @abstractmethod
    def warmup(self, rows: Sequence[Row]) -> int:
        """Return how many steps after the look the speeds leave out, given the rows."""

    def write(self) -> None:
        """Replace `metrics.json`, unless the folder was removed."""
        self._sum_up()
        self._unless_removed(self.folder.write)

    def finish(self, result: Result) -> RunRecord:
        """Finish the record with the run's status and all rows on disk."""
        close_launches(self.record, result.status)
        # From the start: rows read before may be those of a loop that the training left out.
        self._rows = RankSteps(self.folder.steps)
        self._sum_up()
        if result.status == "completed" and not self.record.config.get("exact"):
            self.record.notes.extend(ungated(self.record))
        reason, nan_at = result.reason, self.record.stability.nan_at
        if reason and nan_at and result.status == "failed":
            reason = f"the loss was NaN from step {nan_at[0]} on; {reason}"
        ended = {"status": result.status, "reason": reason, "failure": result.failure}
        self.record = self.record.model_copy(update=ended)
        self.record.bottlenecks = find_bottlenecks(self.record)
        self._unless_removed(self.folder.finish)
        return self.record

    def _unless_removed(self, write: Callable[[RunRecord], None]) -> None:
        """Write the record, unless the folder is gone or goes meanwhile."""
        try:
            if self.folder.is_there():
                write(self.record)
        except FileNotFoundError:
            if self.folder.is_there():
                raise

    def rows_so_far(self) -> list[Row]:
        """Return the rows so far, merged over ranks."""
        return merged_rows(self._rows.read())

    def _sum_up(self) -> None:
        by_rank = self._rows.read()
        record = summarise_ranks(self.record, by_rank, self.warmup(merged_rows(by_rank)))
        took = time.monotonic() - self._started
        self.record = record.model_copy(update={"duration_seconds": took})
