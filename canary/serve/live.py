"""One run that goes on: its files are followed while they are written, and shown as a page.

The page's script asks for it again and replaces what changed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from markupsafe import Markup

from canary.config.spans import look_steps
from canary.errors import InputError, RecordError
from canary.protocol.heartbeat import reading_path
from canary.record import jsonio
from canary.record.alert import alert_words
from canary.record.folder import RunFolder
from canary.record.ranks import RankSteps, merged_rows, rank_files
from canary.record.step_row import Row, RowAlert
from canary.record.strangers import Stamp, goes_on, require_plain, seen_record, stamp
from canary.record.summary import summarise_ranks
from canary.report.charts.sides import ShownRun, checked_rows
from canary.report.render import filled_page
from canary.runner.display import figures
from canary.runner.display.figures import Pace
from canary.serve.listing import Place

UNREADABLE = (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError)
"""What rows of a stranger may raise."""
MOST_OF_A_READING = 64 * 2**10
"""Bytes of the newest samples."""
EVERY_MS = 1000
"""Milliseconds between two looks of an open page."""
CHARTS_EVERY_S = 2.0
CHARTS_SHARE = 0.2
"""Most of a core that the charts of one run may take while they grow."""
MOST_ALERTS = 20
"""Alerts on the page of a running run, the newest ones."""
MOST_PHASES = 20
QUIET_S = 10
"""Seconds without a step after which the page says so."""


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
        self._last: dict[int, Row] = {}
        """The newest of them as it was read, by rank."""
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
        by_rank = self._steps.read()
        for rank, last in self._last.items():
            rest = by_rank[rank][len(self.rows[rank]) - 1 :]
            if not rest or rest[0] is not last:  # A launch began its steps anew.
                self._begin()
                by_rank = self._steps.read()
                break
        for rank, rows in by_rank.items():
            known = self.rows.setdefault(rank, [])
            new = checked_rows(rows[len(known) :])
            known += new
            self._last[rank] = rows[-1]
            for row in new:
                self._add(row, leads=rank == 0)
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


class LiveRun:
    """A run that is watched: its rows so far, and its newest charts for all who watch it."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._following = Following(place.path)
        self._charts = Markup("")
        self._charts_due = 0.0
        self.asked = 0.0
        """When a page was last asked for, in seconds of the monotonic clock."""

    def page(self) -> str:
        """Return the page as it is now.

        Raises:
            InputError, RecordError: as `Following.look`.
        """
        self.asked = time.monotonic()
        seen = self._following
        seen.look()
        if self.asked >= self._charts_due:
            self._draw()
        alerts = [alert_words(alert) for alert in seen.alerts.values()]
        phases = figures.phase_parts(seen.pace)[:MOST_PHASES]
        return filled_page(
            "live.html.jinja",
            title=seen.record.name or "canary",
            subtitle=self._place.name,
            every_ms=EVERY_MS,
            state="Running." if seen.record.launches else "Running: it starts.",
            problem=seen.problem,
            numbers=tuple(_numbers(seen.pace)),
            phases=tuple((name, 100 * share) for name, share in phases),
            alerts=tuple(reversed(alerts[-MOST_ALERTS:])),
            total=len(alerts),
            charts=self._charts,
        )

    def _draw(self) -> None:
        """Draw the charts; this takes up to a second of one core."""
        from canary.report.charts.sides import ShownSides
        from canary.report.comparison_page import charts_of
        from canary.report.page import shown_chart

        used = time.process_time()
        try:
            made = [
                shown_chart(chart) for chart in charts_of(ShownSides((self._following.shown(),)))
            ]
        except (InputError, *UNREADABLE):
            made = []  # A stranger made its rows up; the numbers stay.
        self._charts = Markup(filled_page("charts.html.jinja", charts=made) if made else "")
        used = time.process_time() - used
        self._charts_due = self.asked + max(CHARTS_EVERY_S, used / CHARTS_SHARE)


def _numbers(pace: Pace) -> Iterator[tuple[str, str]]:
    if pace.newest is None:
        yield "Steps", "none yet: the launch starts"
        return
    done = str(pace.done) if pace.steps is None else f"{pace.done} of {pace.steps}"
    yield "Steps", ", ".join((done, *figures.time_left(pace), *_quiet(pace)))
    loss, *speed = figures.speed(pace) if pace.loss() is not None else ("", *figures.speed(pace))
    if speed:
        yield "Speed", ", ".join(speed)
    if machine := figures.machine(pace):
        yield "Machine", ", ".join(machine)
    if learning := [*filter(None, (loss,)), *figures.learning(pace)]:
        yield "Learning", ", ".join(learning)


def _quiet(pace: Pace) -> list[str]:
    """Return how long ago the last step ended, if that is long."""
    written = pace.newest.get("time") if pace.newest else None
    seconds = time.time() - written if isinstance(written, int | float) else 0.0
    return [f"no step for {seconds:.0f} s"] if seconds > QUIET_S else []
