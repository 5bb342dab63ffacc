"""The page of one run that goes on. Its script asks for it again and replaces what changed."""

from __future__ import annotations

import time
from collections.abc import Iterator

from markupsafe import Markup

from canary.errors import InputError
from canary.record.alert import alert_words
from canary.report.render import filled_page
from canary.runner.display import figures
from canary.runner.display.figures import Pace
from canary.serve.following import UNREADABLE, Following
from canary.serve.listing import Place

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
