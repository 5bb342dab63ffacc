"""Speed-ups with their intervals and guards: of a ladder's levels, or of single switches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import altair as alt

from canary.report.charts.chart import BAD, FAINT, GOOD, Chart, Layer

Guard = Literal["holds", "UNSAFE", "not run", "reference"]
GUARDS: tuple[Guard, ...] = ("holds", "UNSAFE", "not run", "reference")


@dataclass(frozen=True)
class Speed:
    """One level or switch."""

    name: str
    ratio: float
    """Samples per second over those of the baseline."""
    low: float | None
    high: float | None
    """Ends of its interval; None after one round."""
    guard: Guard


def speed_up_charts(title: str, finding: str, speeds: Sequence[Speed]) -> Iterator[Chart]:
    """Yield the chart of these speed-ups; nothing without any."""
    if not speeds:
        return
    points = [
        {"name": one.name, "ratio": one.ratio, "low": one.low, "high": one.high, "guard": one.guard}
        for one in speeds
    ]
    order = [one.name for one in speeds]
    y = alt.Y("name:N", title=None, sort=order)
    x = alt.X("ratio:Q", title="times the baseline's samples/s", scale=alt.Scale(zero=False))
    colours = alt.Scale(domain=list(GUARDS), range=[GOOD, BAD, FAINT, FAINT])
    shapes = alt.Scale(domain=list(GUARDS), range=["circle", "cross", "triangle-up", "square"])
    interval = alt.Chart().mark_rule(strokeWidth=3, opacity=0.5)
    dots = alt.Chart().mark_point(filled=True, size=80, opacity=1)
    colour = alt.Color("guard:N", scale=colours)
    known = [point for point in points if point["low"] is not None]
    layers = [
        Layer([{"one": 1.0}], alt.Chart().mark_rule(color=FAINT).encode(x="one:Q")),
        Layer(known, interval.encode(x="low:Q", x2="high:Q", y=y, color=colour)),
        Layer(
            points, dots.encode(x=x, y=y, color=colour, shape=alt.Shape("guard:N", scale=shapes))
        ),
    ]
    rows = tuple((one.name, one.ratio, one.low, one.high, one.guard) for one in speeds)
    columns = ("name", "speed-up", "interval from", "interval to", "guard")
    yield Chart("speedups", title, finding, columns, rows, tuple(layers))
