"""The history of a canary on a machine: metrics over runs, their levels, and where they changed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import altair as alt

from canary.baseline.comparability import own_slug
from canary.report.charts.chart import (
    BAD,
    BASELINE,
    FAINT,
    GOOD,
    INK,
    Chart,
    Layer,
    kept_steps,
    of_kinds,
)
from canary.report.charts.theme import LIGHT
from canary.report.numbers import signed
from canary.report.trend_words import SHOWN_DIGITS, place_words, series_sentence
from canary.trends.model import ChangePoint, HistoryTrends, Series, StoredPoint

PAPER = LIGHT["paper"]
MOST_CHARTS = 12
"""Metrics of a drawer that have a chart: the worst ones first."""
MOST_LABELS = 8
"""Newest changes whose commit stands in the picture; the table has all."""
LEAST_SPAN = 0.02
"""Of the middle value, that the picture spans at least: rounding must not look like noise."""
LONGEST_FACT = 18
MOST_RULES = 100
KINDS = {
    "run": (BASELINE, "circle"),
    "red": (BAD, "cross"),
    "accepted": (GOOD, "triangle-up"),
}
"""Kinds of runs, each with its colour and shape."""
SOLID = [1, 0]
DASHES = {"returned": [9, 4], "accepted": [9, 4]}
"""Of a change's rule, by its standing; solid if it is confirmed and holds."""


@dataclass(frozen=True)
class _Point:
    number: int
    """Counted from 1."""
    run: StoredPoint
    value: float


def history_charts(found: HistoryTrends, name: str) -> Iterator[Chart]:
    """Yield a chart per metric over the runs, the worst first.

    `name`: begins the charts' names.
    """
    machines = machine_words(found)
    made = 0
    for series in found.series:
        points = [
            _Point(number, run, run.value)
            for number, run in enumerate(series.points, start=1)
            if run.value is not None and math.isfinite(run.value)
        ]
        if points and made < MOST_CHARTS:
            made += 1
            yield _chart(series, points, f"{name}-{own_slug(series.metric, 60)}", machines)


def machine_words(found: HistoryTrends) -> dict[int, str]:
    """Return what changed on the machine before a run, by the run's number from 1 on."""
    return {
        place + 1: f"{', '.join(fact.name for fact in facts[:3])}{' ...' if facts[3:] else ''}"
        for place, facts in found.machine_changes
        if facts
    }


def _chart(
    series: Series, points: Sequence[_Point], name: str, machines: Mapping[int, str]
) -> Chart:
    kept = set(kept_steps([{point.number: point.value for point in points}]))
    special = {p.number for p in points if p.run.accepted or p.run.period is None}
    special |= {change.place + 1 for change in series.changes}
    shown = [point for point in points if point.number in kept | special]
    title = f"{series.title[:1].upper()}{series.title[1:]}"
    return Chart(
        name,
        title,
        series_sentence(series, len(machines)),
        (
            *("run", "start", "commit", "verdict", "period", _value_title(series)),
            *("level", "change, %", "machine changed"),
        ),
        tuple(_row(series, point, machines) for point in shown),
        tuple(_layers(series, shown, points, machines)),
    )


def _value_title(series: Series) -> str:
    return f"{series.title}{f', {series.unit}' if series.unit else ''}"


def _row(
    series: Series, point: _Point, machines: Mapping[int, str]
) -> tuple[float | int | str | None, ...]:
    place, run = point.number - 1, point.run
    level = next((one for one in series.levels if one.first <= place <= one.last), None)
    change = next((one for one in series.changes if one.place == place), None)
    return (
        point.number,
        run.start[:16],
        run.commit[:SHOWN_DIGITS],
        run.verdict,
        run.period,
        point.value,
        level.center if level is not None and run.period is not None else None,
        change.percent if change is not None else None,
        machines.get(point.number),
    )


def _layers(
    series: Series,
    shown: Sequence[_Point],
    every: Sequence[_Point],
    machines: Mapping[int, str],
) -> Iterator[Layer]:
    scale = _scale(every)
    y = alt.Y("value:Q", title=_value_title(series), scale=scale)
    yield from _levels(series, y, scale)
    changed = {change.place + 1 for change in series.changes}
    rules = [{"run": number - 0.5} for number in machines if number not in changed]
    if rules:
        rule = alt.Chart().mark_rule(color=FAINT, strokeDash=[1, 4])
        yield Layer(rules[-MOST_RULES:], rule.encode(x="run:Q"))
    yield from _runs(shown, y)
    yield from _changes(series)


def _scale(points: Sequence[_Point]) -> alt.Scale:
    """Return a scale around the runs. An interval of a level that is far wider ends at the edge."""
    values = [point.value for point in points]
    low, high = min(values), max(values)
    room = max(high - low, LEAST_SPAN * abs(low + high) / 2) / 2 or 1.0
    return alt.Scale(domain=[low - room, high + room], nice=False, zero=False, clamp=True)


def _levels(series: Series, y: alt.Y, scale: alt.Scale) -> Iterator[Layer]:
    rows = [
        {
            "from": level.first + 0.5,
            "to": level.last + 1.5,
            "low": level.interval[0],
            "high": level.interval[1],
            "value": level.center,
        }
        for level in series.levels
        if all(map(math.isfinite, (level.center, *level.interval)))
    ]
    if rows:
        area = alt.Chart().mark_rect(color=BASELINE, opacity=0.25)
        low = alt.Y("low:Q", scale=scale)
        yield Layer(rows, area.encode(x="from:Q", x2="to:Q", y=low, y2="high:Q"))
        line = alt.Chart().mark_rule(color=BASELINE, strokeWidth=2)
        yield Layer(rows, line.encode(x="from:Q", x2="to:Q", y=y))


def _runs(shown: Sequence[_Point], y: alt.Y) -> Iterator[Layer]:
    x = alt.X(
        "run:Q",
        title="run, oldest first",
        axis=alt.Axis(tickMinStep=1, grid=False),
        scale=alt.Scale(zero=False, nice=False),
    )
    kinds = [{"run": p.number, "value": p.value, "kind": _kind(p.run)} for p in shown]
    colour, shape = of_kinds("kind", KINDS, kinds)
    marks = alt.Chart().mark_point(filled=True, size=40, opacity=0.9)
    yield Layer(kinds, marks.encode(x=x, y=y, color=colour, shape=shape))


def _kind(run: StoredPoint) -> str:
    if run.period is None:
        return "red"
    return "accepted" if run.accepted else "run"


def _changes(series: Series) -> Iterator[Layer]:
    """Yield a rule where each level begins: by colour worse or better, by dash how sure. Along it
    stand the change, its commit and what changed on the machine."""
    styles: dict[tuple[str, str], list[dict[str, float]]] = {}
    for change in series.changes[-MOST_RULES:]:
        colour = BAD if change.worse else GOOD
        style = (FAINT if series.lower_is_better is None else colour, change.standing)
        styles.setdefault(style, []).append({"run": change.place + 0.5})
    for (colour, standing), rows in styles.items():
        dash = DASHES.get(standing, SOLID)
        rule = alt.Chart().mark_rule(color=colour, strokeWidth=1.5, strokeDash=dash)
        yield Layer(rows, rule.encode(x="run:Q"))
    labels = [
        {"run": change.place + 0.5, "text": _label(series, change)}
        for change in series.changes[-MOST_LABELS:]
    ]
    for colour, width in ((PAPER, 3), (INK, 0)) if labels else ():
        text = alt.Chart().mark_text(
            angle=270,
            align="right",
            baseline="bottom",
            dy=-3,
            fontSize=11,
            color=colour,
            stroke=colour,
            strokeWidth=width,
        )
        yield Layer(labels, text.encode(x="run:Q", y=alt.value(4), text="text:N"))


def _label(series: Series, change: ChangePoint) -> str:
    words = [signed(change.percent), place_words(series, change)]
    facts = [fact.name[:LONGEST_FACT] for fact in change.machine[:1]]
    more = " ..." if len(change.machine) > 1 else ""
    sure = [] if change.standing == "confirmed" else [change.standing]
    return ", ".join([" ".join(words), *(f"{fact}{more}" for fact in facts), *sure])
