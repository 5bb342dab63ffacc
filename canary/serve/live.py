"""What the page of one running run says, region by region. A region is replaced as a whole."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from canary.errors import InputError
from canary.record.alerts import alert_words
from canary.record.types import RunRecord
from canary.runner.display import figures
from canary.runner.display.pace import Pace
from canary.serve.feeds import ENDED
from canary.serve.filling import filled
from canary.serve.following import UNREADABLE, Following

ALERTS, CHARTS, NUMBERS, STATE = "alerts", "charts", "numbers", "state"
MOST_ALERTS = 20
"""Alerts on the page of a running run, the newest ones."""
MOST_PHASES = 20
QUIET_S = 10
"""Seconds without a step after which the page says so."""
Texts = dict[str, str]
"""HTML by region."""


@dataclass(frozen=True)
class Phase:
    """The share of one phase in the last steps."""

    name: str
    percent: float


def news(following: Following) -> Texts:
    """Return the cheap regions; ENDED if the run is over or gone."""
    try:
        return words(following) if following.goes_on() else {ENDED: ""}
    except InputError:
        return {ENDED: ""}


def words(following: Following) -> Texts:
    """Return the regions that are cheap: state, numbers, alerts.

    Raises:
        InputError, RecordError: as `Following.look`.
    """
    seen, pace = following.look()
    alerts = [alert_words(alert) for alert in seen.alerts]
    parts = figures.phase_parts(pace)
    return {
        STATE: filled("live_state.html.jinja", state=_state(seen.record), problem=seen.problem),
        NUMBERS: filled(
            "live_numbers.html.jinja",
            numbers=tuple(_numbers(pace)),
            phases=tuple(Phase(name, 100 * share) for name, share in parts[:MOST_PHASES]),
        ),
        ALERTS: filled(
            "live_alerts.html.jinja",
            alerts=tuple(reversed(alerts[-MOST_ALERTS:])),
            total=len(alerts),
        ),
    }


def charts(following: Following) -> Texts:
    """Draw the charts, if the run is there; this takes up to a second of one core."""
    from canary.report.charts.sides import ShownSides
    from canary.report.comparison_page import charts_of
    from canary.report.page import shown_chart

    try:
        sides = ShownSides((following.look()[0].shown(),))
        made = [shown_chart(chart) for chart in charts_of(sides)]
    except (InputError, *UNREADABLE):
        made = []  # It is gone, or a stranger made its rows up; the numbers stay.
    return {CHARTS: filled("charts.html.jinja", charts=made) if made else ""}


def _state(record: RunRecord) -> str:
    launch = record.launches[-1] if record.launches else None
    if record.status != "running":
        return f"{record.status.capitalize()}."
    if launch is None:
        return "Running: it starts."
    return "Running."


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
