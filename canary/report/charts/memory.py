"""Memory over the steps: resident, allocated, reserved and peak, with the baseline's peak."""

from __future__ import annotations

from collections.abc import Iterator

import altair as alt

from canary.record.jsonio import number
from canary.report.charts.chart import BASELINE, CURRENT, OTHERS, Chart, Layer, kept_steps
from canary.report.charts.learning import STEP
from canary.report.charts.sides import Series, ShownSides, of_steps
from canary.report.numbers import signed, significant

KINDS = {
    "allocated": "allocated_bytes",
    "reserved": "reserved_bytes",
    "peak": "peak_bytes",
    "resident": "rss_bytes",
}
"""What is drawn, and its key in a row."""
DASHES = ([1, 0], [6, 2], [2, 2], [8, 2, 2, 2])
MB = 2**20


def memory_charts(sides: ShownSides) -> Iterator[Chart]:
    """Yield memory of the newest run's first launch, if its steps are known."""
    rows = sides.newest.first_rows()
    series = {name: found for name, key in KINDS.items() if (found := _in_mb(of_steps(rows, key)))}
    if not series:
        return
    steps = kept_steps(list(series.values()))
    points = [
        {"step": step, "mb": one[step], "kind": name}
        for name, one in series.items()
        for step in steps
        if step in one
    ]
    domain = list(series)
    most, was = _peaks(sides)
    values = [value for one in series.values() for value in one.values()]
    y = alt.Y("mb:Q", title="MB", scale=_scale([*values, *([was] if was is not None else [])]))
    lines = (
        alt.Chart()
        .mark_line(strokeWidth=2)
        .encode(
            x=STEP,
            y=y,
            color=alt.Color(
                "kind:N", scale=alt.Scale(domain=domain, range=[CURRENT, *OTHERS][: len(domain)])
            ),
            strokeDash=alt.StrokeDash(
                "kind:N", scale=alt.Scale(domain=domain, range=list(DASHES[: len(domain)]))
            ),
        )
    )
    layers = [Layer(points, lines)]
    if was is not None:
        rule = alt.Chart().mark_rule(color=BASELINE, strokeDash=[4, 3])
        layers.append(Layer([{"mb": was}], rule.encode(y=y)))
    yield Chart(
        "memory",
        "Memory over the steps",
        _finding(series, most, was),
        ("step", *(f"{name} MB" for name in series)),
        tuple((step, *(one.get(step) for one in series.values())) for step in steps),
        tuple(layers),
    )


LEAST_RANGE = 0.05
"""Share of the largest value that the axis spans at least: noise must not look like a leak."""


def _scale(values: list[float]) -> alt.Scale:
    low, high = min(values), max(values)
    if high - low >= LEAST_RANGE * high:
        return alt.Scale(zero=False)
    return alt.Scale(domain=[max(0.0, high - LEAST_RANGE * high), high + 0.1 * LEAST_RANGE * high])


def _in_mb(series: Series) -> Series:
    return {step: value / MB for step, value in series.items()}


def _peaks(sides: ShownSides) -> tuple[float | None, float | None]:
    """Return the peaks (current, baseline) in MB, as the comparison shows them."""
    if sides.found is None:
        return sides.newest.record.perf.max_mem_mb, None
    found = sides.found.current, sides.found.baseline
    now, was = (number(side.summary.get("max_mem_mb")) for side in found)
    return now, was


def _finding(series: dict[str, Series], most: float | None, was: float | None) -> str:
    name = "resident" if set(series) == {"resident"} else "allocated"
    one = series.get(name) or next(iter(series.values()))
    first, last = one[min(one)], one[max(one)]
    grows = f"{name} memory goes from {significant(first)} to {significant(last)} MB"
    if significant(first) == significant(last):
        grows = f"{name} memory stays at {significant(last)} MB"
    if most is None:
        return f"{grows[0].upper()}{grows[1:]} over {len(one)} steps."
    peak = f"The peak is {significant(most)} MB"
    if was is not None and significant(was) == significant(most):
        peak = f"The peak is equal to the baseline's, dashed ({significant(most)} MB)"
    elif was is not None:
        change = signed(100 * (most / was - 1)) if was else "from 0"
        peak += f"; the baseline's, dashed, is {significant(was)} MB ({change})"
    return f"{peak}. {grows[0].upper()}{grows[1:]} over {len(one)} steps."
