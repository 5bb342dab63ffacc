"""Follow one run's files while they are written: rows, alerts, the record."""

from __future__ import annotations

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
from canary.report.charts.sides import ShownRun, checked_rows
from canary.runner.display.figures import Pace

UNREADABLE = (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError)
"""What rows of a stranger may raise."""
MOST_OF_A_READING = 64 * 2**10
"""Bytes of the newest samples."""


class Following:
    """A run while it goes on: what its files held when somebody last looked."""

    def __init__(self, folder: Path) -> None:
        self._files = RunFolder(folder)
        self._stamp: Stamp | None = None
        self.record = seen_record(folder)
        self.problem = ""
        """Why its steps cannot be read."""
        self._begin()

    def _begin(self) -> None:
        self._steps, self._bytes = RankSteps(self._files.steps), 0
        self.rows: dict[int, list[Row]] = {}
        """By rank."""
        self.alerts: dict[tuple[object, ...], RowAlert] = {}
        """By launch, step and type: several ranks may raise one alert."""
        self.pace = Pace()
        """Of the newest launch."""
        self.pace.begin(None)
        self._launch: int | None = None

    def look(self) -> None:
        """Read what is new.

        Raises:
            InputError, RecordError: the record is gone or cannot be read.
        """
        now = stamp(self._files.metrics)
        if now is None or now != self._stamp or not goes_on(self.record):
            self.record, self._stamp = seen_record(self._files.path), now
        try:
            require_plain(self._files.steps)
            self._read_rows()
            self.problem = ""
        except RecordError as error:
            self.problem = error.message
        except UNREADABLE as error:
            self.problem = f"{self._files.steps} holds rows that cannot be read: {error}"
        self.pace.reading = self._newest_reading()

    def _read_rows(self) -> None:
        size = sum(file.stat().st_size for file in rank_files(self._files.steps).values())
        if size < self._bytes:
            self._begin()  # Somebody wrote the file anew.
        if size == self._bytes:
            return
        for rank, rows in self._steps.read().items():
            known = self.rows.setdefault(rank, [])
            new = checked_rows(rows[len(known) :])
            for row in new:
                self._add(row, leads=rank == min(self.rows))
            known += new
        self._bytes = size

    def _add(self, row: Row, *, leads: bool) -> None:
        for alert in row.get("alerts") or ():
            self.alerts.setdefault((row["launch"], alert["step"], alert["type"]), alert)
        if not leads:
            return
        if row["launch"] != self._launch:
            self._launch = row["launch"]
            config = self.record.config
            steps = _whole(config.get("max_steps"))
            if config.get("exact") is True:
                steps = look_steps(_whole(config.get("look_steps")) or 0, steps)
            self.pace.begin(steps)
        self.pace.add(row)

    def _newest_reading(self) -> dict[str, float]:
        """Return the newest samples of the machine that the newest launch left."""
        launch = self.record.launches[-1].index if self.record.launches else 0
        file = reading_path(self._files.scratch / f"launch{launch}")
        found = stamp(file)
        if found is None or found[1] > MOST_OF_A_READING:
            return {}
        try:
            reading = jsonio.loads(file.read_bytes()).items()
        except UNREADABLE:
            return {}
        return {name: value for name, value in reading if isinstance(value, int | float)}

    def shown(self) -> ShownRun:
        """Return the run for charts, summarised from its rows so far."""
        record = self.record
        if record.status == "running" and self.rows:
            warmup = _whole(record.config.get("metrics_warmup_steps")) or 0
            record = summarise_ranks(record, self.rows, warmup)
        return ShownRun(record, tuple(merged_rows(self.rows)))


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None
