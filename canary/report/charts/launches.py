"""Step time of the launches of both sides, with the interval that decided."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import altair as alt

from canary.compare.report import Check, Comparison
from canary.record.jsonio import number
from canary.report.charts.chart import (
    BAD,
    BEFORE,
    CURRENT,
    NOW,
    SIDE_COLOURS,
    SIDE_SHAPES,
    Chart,
    Layer,
)
from canary.report.charts.sides import ShownRun, ShownSides
from canary.report.numbers import significant

CHECK = "step_time_median"
MOST_LAUNCHES = 120
"""Launches of one side in the chart, the newest ones."""


def launch_charts(sides: ShownSides) -> Iterator[Chart]:
    """Yield the chart of launches, if several ran or their times were judged."""
    both = ((sides.baseline, BEFORE), (sides.current, NOW))
    dots = [dot for runs, side in both for dot in list(_dots(runs, side))[-MOST_LAUNCHES:]]
    check = _check(sides.found)
    if len(dots) < 2 and check is None:
        return
    marks = (
        alt.Chart()
        .mark_point(filled=True, size=60, opacity=0.8)
        .encode(
            x=alt.X("ms:Q", title="ms per step, median of a launch", scale=alt.Scale(zero=False)),
            y=alt.Y("side:N", title=None, sort=[BEFORE, NOW]),
            color=alt.Color("side:N", scale=SIDE_COLOURS, legend=None),
            shape=alt.Shape("side:N", scale=SIDE_SHAPES, legend=None),
        )
    )
    layers = (Layer(dots, marks), *_decision(check))
    rows = tuple((dot["side"], dot["run"], dot["launch"], dot["ms"]) for dot in dots)
    columns = ("side", "run", "launch", "ms per step")
    yield Chart(
        "launches", "Step time of each launch", _decided(check, dots), columns, rows, layers
    )


def _dots(runs: Iterable[ShownRun], side: str) -> Iterator[dict[str, str | float]]:
    for run in runs:
        for launch in run.record.launches:
            if launch.median_step_time_s is not None:
                yield {
                    "side": side,
                    "run": run.record.run_id,
                    "launch": launch.index,
                    "ms": 1e3 * launch.median_step_time_s,
                }


def _check(found: Comparison | None) -> Check | None:
    """Return the check of the median step time, if it was judged against a baseline."""
    checks = found.checks if found is not None else ()
    return next((c for c in checks if c.name == CHECK and c.interval and c.baseline), None)


def _decision(check: Check | None) -> Iterator[Layer]:
    """Yield the interval of the change, and the limit, where they lie in milliseconds."""
    if check is None or check.interval is None:
        return
    unit = 1e3 if check.unit == "s" else 1.0
    was = unit * float(number(check.baseline) or 0.0)
    low, high = (was * (1 + end / 100) for end in check.interval)
    bar = alt.Chart().mark_bar(height=14, color=CURRENT, opacity=0.25)
    y = alt.Y("side:N", sort=[BEFORE, NOW])
    yield Layer([{"side": NOW, "low": low, "high": high}], bar.encode(x="low:Q", x2="high:Q", y=y))
    if check.threshold is not None:
        limit = alt.Chart().mark_rule(color=BAD, strokeDash=[4, 3])
        yield Layer([{"limit": was * (1 + check.threshold / 100)}], limit.encode(x="limit:Q"))


def _decided(check: Check | None, dots: list[dict[str, str | float]]) -> str:
    if check is None:
        times = [float(dot["ms"]) for dot in dots]
        spread = f", from {significant(min(times))} to {significant(max(times))} ms"
        return f"{len(dots)} launches{spread}. No change was judged."
    message = f"{check.message[:1].upper()}{check.message[1:]}"
    return f"{message}. The bar is the interval of the change, the dashed line the limit."
