"""Follow one run's files while they are written: rows, alerts, the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from canary.config.spans import look_steps
from canary.errors import RecordError
from canary.protocol.heartbeat import reading_path
from canary.record import jsonio
from canary.record.folder import RunFolder
from canary.record.ranks import RankSteps, merged_rows, rank_files
from canary.record.step_row import Row, RowAlert
from canary.record.strangers import Stamp, goes_on, require_plain, seen_record, stamp
from canary.record.summary import summarise_ranks
from canary.record.types import RunRecord
from canary.report.charts.sides import ShownRun, checked_rows
from canary.runner.display.pace import Pace

UNREADABLE = (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError)
"""What rows of a stranger may raise."""
MOST_OF_A_READING = 64 * 2**10
"""Bytes of the newest samples."""


@dataclass(frozen=True)
class Seen:
    """What is known of a run at one moment."""

    record: RunRecord
    by_rank: Mapping[int, Sequence[Row]]
    alerts: tuple[RowAlert, ...] = ()
    problem: str = ""
    """Why its steps cannot be read."""

    def shown(self) -> ShownRun:
        """Return the run for charts; one that goes on is summarised from its rows so far."""
        record = self.record
        if record.status == "running" and self.by_rank:
            warmup = _whole(record.config.get("metrics_warmup_steps")) or 0
            record = summarise_ranks(record, self.by_rank, warmup)
        return ShownRun(record, tuple(merged_rows(self.by_rank)))


class Following:
    """Reads what is new in a run's folder."""

    def __init__(self, folder: Path) -> None:
        self._files = RunFolder(folder)
        self._stamp: Stamp | None = None
        self._record = seen_record(folder)
        self._steps = _Steps(self._files.steps)

    def look(self) -> tuple[Seen, Pace]:
        """Read what is new.

        Raises:
            InputError, RecordError: the record is gone or cannot be read.
        """
        self._read_record()
        try:
            pace, problem = self._read_steps(), ""
        except RecordError as error:
            pace, problem = Pace(), error.message
        by_rank = {rank: tuple(rows) for rank, rows in self._steps.rows.items()}
        return Seen(self._record, by_rank, tuple(self._steps.alerts.values()), problem), pace

    def _read_record(self) -> None:
        now = stamp(self._files.metrics)
        if now is None or now != self._stamp or not goes_on(self._record):
            self._record = seen_record(self._files.path)
            self._stamp = now

    def _read_steps(self) -> Pace:
        """Read new rows, and return the pace of the newest launch."""
        config = self._record.config
        steps = _whole(config.get("max_steps"))
        if config.get("exact") is True:
            steps = look_steps(_whole(config.get("look_steps")) or 0, steps)
        self._steps.read(steps)
        pace = self._steps.pace
        pace.reading = self._newest_reading()
        return pace

    def _newest_reading(self) -> dict[str, float]:
        """Return the newest samples of the machine that the newest launch left."""
        launch = self._record.launches[-1].index if self._record.launches else 0
        file = reading_path(self._files.scratch / f"launch{launch}")
        found = stamp(file)
        if found is None or found[1] > MOST_OF_A_READING:
            return {}
        try:
            reading = jsonio.loads(file.read_bytes()).items()
        except UNREADABLE:
            return {}
        return {name: value for name, value in reading if isinstance(value, int | float)}


class _Steps:
    """The rows of a run, of all ranks."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begin()

    def _begin(self) -> None:
        self._files = RankSteps(self._path)
        self._bytes = 0
        self.rows: dict[int, list[Row]] = {}
        self.alerts: dict[tuple[object, ...], RowAlert] = {}
        """By launch, step and type: several ranks may raise one alert."""
        self.pace = Pace()
        self.pace.begin(None)
        self._launch: int | None = None

    def read(self, steps: int | None) -> None:
        """Read new rows; `steps` is the length of a launch.

        Raises:
            RecordError: a file or a row cannot be read.
        """
        require_plain(self._path)
        size = sum(file.stat().st_size for file in rank_files(self._path).values())
        if size < self._bytes:
            self._begin()  # Somebody wrote the file anew.
        if size == self._bytes:
            return
        try:
            for rank, rows in self._files.read().items():
                known = self.rows.setdefault(rank, [])
                new = checked_rows(rows[len(known) :])
                for row in new:
                    self._add(row, steps, leads=rank == min(self.rows))
                known += new
        except UNREADABLE as error:
            raise RecordError(f"{self._path} holds rows that cannot be read: {error}") from error
        self._bytes = size

    def _add(self, row: Row, steps: int | None, *, leads: bool) -> None:
        for alert in row.get("alerts") or ():
            self.alerts.setdefault((row["launch"], alert["step"], alert["type"]), alert)
        if not leads:
            return
        if row["launch"] != self._launch:
            self._launch = row["launch"]
            self.pace.begin(steps)
        self.pace.add(row)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None
