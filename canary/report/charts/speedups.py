"""Speed-ups with their intervals and guards: of a ladder's levels, or of single switches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import altair as alt

from canary.report.charts.chart import BAD, FAINT, GOOD, Chart, Layer, of_kinds

Guard = Literal["holds", "UNSAFE", "not run", "reference"]
GUARDS: dict[str, tuple[str, str]] = {
    "holds": (GOOD, "circle"),
    "UNSAFE": (BAD, "cross"),
    "not run": (FAINT, "triangle-up"),
    "reference": (FAINT, "square"),
}
"""Colour and shape of each."""
REACH = 3.0
"""An interval is drawn up to this many times the largest speed-up; the table has its end."""
LONGEST_NAME = 24


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
    most = REACH * max(1.0, *(one.ratio for one in speeds))
    points = [
        {
            "name": _short(one.name),
            "ratio": one.ratio,
            "low": one.low,
            "high": None if one.high is None else min(one.high, most),
            "guard": one.guard,
        }
        for one in speeds
    ]
    order = [_short(one.name) for one in speeds]
    y = alt.Y("name:N", title=None, sort=order)
    x = alt.X("ratio:Q", title="times the baseline's samples/s", scale=alt.Scale(zero=False))
    colour, shape = of_kinds("guard", GUARDS, points)
    interval = alt.Chart().mark_rule(strokeWidth=3, opacity=0.5)
    dots = alt.Chart().mark_point(filled=True, size=80, opacity=1)
    known = [point for point in points if point["low"] is not None]
    layers = [
        Layer([{"one": 1.0}], alt.Chart().mark_rule(color=FAINT).encode(x="one:Q")),
        Layer(known, interval.encode(x="low:Q", x2="high:Q", y=y, color=colour)),
        Layer(points, dots.encode(x=x, y=y, color=colour, shape=shape)),
    ]
    rows = tuple((one.name, one.ratio, one.low, one.high, one.guard) for one in speeds)
    columns = ("name", "speed-up", "interval from", "interval to", "guard")
    yield Chart("speedups", title, finding, columns, rows, tuple(layers))


def _short(name: str) -> str:
    """Cut a long name in the middle: names of one switch differ at their ends."""
    end = LONGEST_NAME // 2
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - end - 1]}…{name[-end:]}"
