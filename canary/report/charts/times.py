"""Step time: launches of both sides with the interval that decided, and the steps of a launch."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator

import altair as alt

from canary.compare.report import Check, Comparison
from canary.record.jsonio import number
from canary.record.step_row import Row
from canary.record.summary import untimed_steps
from canary.report.charts.chart import (
    BAD,
    BEFORE,
    CURRENT,
    FAINT,
    INK,
    NOW,
    OTHERS,
    SIDE_COLOURS,
    SIDE_SHAPES,
    Chart,
    Layer,
    kept_steps,
)
from canary.report.charts.learning import STEP
from canary.report.charts.sides import ShownRun, ShownSides
from canary.report.numbers import significant

CHECK = "step_time_median"
MOST_LAUNCHES = 120
"""Launches of one side in the chart, the newest ones."""
DATA_WAIT = 0.3
"""A step that spends this share of its time in the data phase counts as a wait for data."""


def time_charts(sides: ShownSides) -> Iterator[Chart]:
    """Yield the chart of launches, and that of the newest run's steps if they are known."""
    yield from _launches(sides)
    yield from _steps(sides.newest)


def _launches(sides: ShownSides) -> Iterator[Chart]:
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


def _steps(run: ShownRun) -> Iterator[Chart]:
    rows = {row["step"]: row for row in run.first_rows() if "step" in row and "wall_s" in row}
    if not rows:
        return
    series = {step: 1e3 * row["wall_s"] for step, row in rows.items()}
    shown = kept_steps([series])
    warmup = _warmup(run)
    table = tuple((step, series[step], _kind(rows[step], warmup)) for step in shown)
    points = [{"step": step, "ms": ms, "kind": kind} for step, ms, kind in table]
    special = [point for point in points if point["kind"] != PLAIN]
    y = alt.Y("ms:Q", title="ms", scale=alt.Scale(zero=True))
    line = alt.Chart().mark_line(strokeWidth=1.5, color=CURRENT)
    layers = [Layer(points, line.encode(x=STEP, y=y))]
    if special:
        there = [kind for kind in KINDS if any(point["kind"] == kind for point in special)]
        kinds = alt.Scale(domain=there, range=[KINDS[kind][0] for kind in there])
        shapes = alt.Scale(domain=there, range=[KINDS[kind][1] for kind in there])
        marks = alt.Chart().mark_point(filled=True, size=55, opacity=1, color=INK)
        colour = alt.Color("kind:N", scale=kinds)
        shape = alt.Shape("kind:N", scale=shapes)
        layers.append(Layer(special, marks.encode(x=STEP, y=y, color=colour, shape=shape)))
    yield Chart(
        "steps",
        "Time of each step",
        _slowest(run, series, rows),
        ("step", "ms", "kind"),
        table,
        tuple(layers),
    )


PLAIN = "plain"
KINDS = {
    "look": (FAINT, "circle"),
    "warm-up": (FAINT, "diamond"),
    "profiled": (FAINT, "cross"),
    "checkpoint": (OTHERS[1], "square"),
    "evaluation": (OTHERS[0], "triangle-up"),
    "waits for data": (OTHERS[2], "circle"),
}
"""Steps that are told apart, each with its colour and shape."""


def _warmup(run: ShownRun) -> int:
    """Return the last step that the run's speed leaves out."""
    return run.record.first_step - 1 + untimed_steps(run.record)


def _kind(row: Row, warmup: int) -> str:
    """Return what else a step did that may explain its time."""
    phases = row.get("phases") or {}
    if row.get("look"):
        return "look"
    if row["step"] <= warmup:
        return "warm-up"
    if row.get("profiled"):
        return "profiled"
    for kind in ("checkpoint", "evaluation"):
        if phases.get(kind):
            return kind
    return "waits for data" if phases.get("data", 0.0) > DATA_WAIT * row["wall_s"] else PLAIN


def _slowest(run: ShownRun, series: dict[int, float], rows: dict[int, Row]) -> str:
    warmup, timed = _warmup(run), run.record.perf.step_time
    known = {step: ms for step, ms in series.items() if step > warmup} or series
    typical = 1e3 * timed.median if timed.count else statistics.median(known.values())
    step = max(known, key=lambda each: known[each])
    kind = _kind(rows[step], warmup)
    what = "" if kind == PLAIN else f" ({kind})"
    return (
        f"The median step takes {significant(typical)} ms. The slowest timed step is step {step} "
        f"with {significant(series[step])} ms{what}."
    )
