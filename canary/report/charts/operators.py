"""Operators: their time in a profile, and those that are new, gone, slower or faster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import altair as alt

from canary.compare.diagnosis.operators import (
    OperatorDifference,
    OperatorDifferences,
    OperatorUse,
    operator_differences,
)
from canary.record.types import RunRecord
from canary.report.charts.chart import BAD, CURRENT, GOOD, Chart, Layer
from canary.report.charts.sides import ShownRun, ShownSides
from canary.report.numbers import signed, significant

MOST_BARS = 10
MOST_ROWS = 60
LONGEST_NAME = 24


def operator_charts(sides: ShownSides) -> Iterator[Chart]:
    """Yield the operators whose time or count differs; nothing if none does."""
    if sides.baseline:
        both = (_telling(side) for side in (sides.current, sides.baseline))
        yield from difference_chart(operator_differences(*both))


def _telling(side: Sequence[ShownRun]) -> RunRecord:
    """Return the newest run with a profile or a look, which counts operators; else the newest."""
    records = [run.record for run in reversed(side)]
    return next((r for r in records if r.profiler.steps or r.exact), records[0])


def self_time_charts(times: Mapping[str, float]) -> Iterator[Chart]:
    """Yield the operators' own times in ms per step, longest first; nothing without any."""
    if not times:
        return
    ordered = sorted(times.items(), key=lambda pair: -pair[1])
    total = sum(times.values())
    bars: list[dict[str, Any]] = [
        {"name": f"{number}. {_short(name)}", "ms": ms, "words": f"{100 * ms / total:.1f}%"}
        for number, (name, ms) in enumerate(ordered[:MOST_BARS], start=1)
    ]
    chart = alt.Chart()
    x = alt.X(
        "ms:Q", title="self time, ms per step", scale=alt.Scale(domain=[0, 1.15 * ordered[0][1]])
    )
    y = alt.Y("name:N", title=None, sort=[bar["name"] for bar in bars])
    words = chart.mark_text(align="left", dx=4)
    layers = (
        Layer(bars, chart.mark_bar(color=CURRENT).encode(x=x, y=y)),
        Layer(bars, words.encode(x=x, y=y, text="words:N")),
    )
    name, ms = ordered[0]
    finding = (
        f"{name} takes {significant(ms, 3)} ms per step, {100 * ms / total:.1f}% of the self time "
        "of operators."
    )
    rows = tuple((name, ms, 100 * ms / total) for name, ms in ordered[:MOST_ROWS])
    columns = ("operator", "ms per step", "% of operators")
    yield Chart("self_time", "Self time of operators", finding, columns, rows, layers)


def difference_chart(found: OperatorDifferences) -> Iterator[Chart]:
    """Yield the chart of these differences; nothing without any."""
    if found.source is None or not found.rows:
        return
    timed = found.source == "profiler"
    unit = "ms per step" if timed else "calls per step"
    ordered = sorted(found.rows, key=lambda row: -abs(_growth(row, timed)))
    bars: list[dict[str, Any]] = [
        {
            "name": f"{number}. {_short(row.name)}",
            "growth": _growth(row, timed),
            "words": f"{signed(_growth(row, timed), '')} {row.change}",
            "worse": _growth(row, timed) > 0,
        }
        for number, row in enumerate(ordered[:MOST_BARS], start=1)
    ]
    chart = alt.Chart()
    x = alt.X("growth:Q", title=f"current less baseline, {unit}", scale=alt.Scale(padding=70))
    y = alt.Y("name:N", title=None, sort=[bar["name"] for bar in bars])
    colour = alt.condition("datum.worse", alt.value(BAD), alt.value(GOOD))
    layers = [Layer(bars, chart.mark_bar().encode(x=x, y=y, color=colour))]
    for worse, mark in (
        (True, chart.mark_text(align="left", dx=4)),
        (False, chart.mark_text(align="right", dx=-4)),
    ):
        words = mark.encode(x=x, y=y, text="words:N")
        layers.append(Layer([bar for bar in bars if bar["worse"] is worse], words))
    rows = tuple(
        (
            row.name,
            row.change,
            _of(row.baseline, timed),
            _of(row.current, timed),
            _growth(row, timed),
        )
        for row in ordered[:MOST_ROWS]
    )
    columns = ("operator", "change", f"baseline, {unit}", f"current, {unit}", f"growth, {unit}")
    title = "Operators by time" if timed else "Operators by count"
    yield Chart(
        "operators", title, _finding(found, ordered, timed, unit), columns, rows, tuple(layers)
    )


def _growth(row: OperatorDifference, timed: bool) -> float:
    return (row.growth_ms if timed else row.growth_calls) or 0.0


def _of(use: OperatorUse | None, timed: bool) -> float | None:
    return None if use is None else (use.self_ms if timed else use.calls)


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def _finding(
    found: OperatorDifferences, ordered: list[OperatorDifference], timed: bool, unit: str
) -> str:
    counts = {
        change: sum(row.change == change for row in ordered)
        for change in ("new", "gone", "grown", "shrunk")
    }
    said = ", ".join(f"{number} {change}" for change, number in counts.items() if number)
    first = ordered[0]
    source = "" if timed else " They were counted in the look, without noise."
    return (
        f"{len(found.rows)} operators differ ({said}). The largest is {first.name}: "
        f"{signed(_growth(first, timed), '')} {unit}.{source}"
    )
