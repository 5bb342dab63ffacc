"""Loss, gradient norm, the trainer's metrics, step time and memory over the steps, against the
baseline's band."""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

import altair as alt

from canary.compare.metrics.samples import curve_in, own_name
from canary.config.metric_gates import Statistic
from canary.record.end_loss import TAIL_SHARE, end_value, finite
from canary.record.jsonio import number
from canary.record.summary import untimed_steps
from canary.report.charts.chart import (
    BAD,
    BASELINE,
    BEFORE,
    NOW,
    SIDE_COLOURS,
    SIDE_DASHES,
    Cell,
    Chart,
    Layer,
    kept_steps,
)
from canary.report.charts.sides import (
    Series,
    ShownRun,
    ShownSides,
    charted_metrics,
    gradient_norms,
    losses,
    metric,
    of_steps,
)
from canary.report.numbers import signed, significant
from canary.report.view import scaled

IN_ITS_UNIT = ("mean", "median", "last", "max", "min", "area", "at")
"""Statistics whose limit can be drawn beside the values."""
_GATE = re.compile(rf"metrics\.(.+)\.({'|'.join(get_args(Statistic))})(\.\d+)?", re.DOTALL)
MOST_CHARTS = 20

STEP = alt.X(
    "step:Q",
    title="step",
    axis=alt.Axis(tickMinStep=1, grid=False),
    scale=alt.Scale(zero=False, nice=False),
)


def learning_charts(sides: ShownSides) -> Iterator[Chart]:
    """Yield one chart per series that the newest current run has, gated ones among them."""
    limits = limits_by_metric(sides)
    yield from _chart(sides, "loss", "Loss", losses, limits.pop("loss", ()))
    norms = limits.pop("grad_norm", ())
    yield from _chart(sides, "grad_norm", "Gradient norm", gradient_norms, norms)
    for quantity in charted_metrics(sides.newest):
        title = quantity.label[0].upper() + quantity.label[1:]
        read: Callable[[ShownRun], Series] = partial(metric, quantity=quantity)
        if quantity.name in limits and gated_series(sides.newest, quantity.name):
            # A stored run has no steps, but the curves of its gated metrics.
            read = partial(gated_series, name=quantity.name)
        yield from _chart(sides, quantity.name, title, read, limits.pop(quantity.name, ()))
    for place, (name, numbers) in enumerate([*limits.items()][:MOST_CHARTS], start=1):
        yield from _chart(sides, f"gate_{place}", name, partial(gated_series, name=name), numbers)


def _chart(
    sides: ShownSides,
    name: str,
    title: str,
    read: Callable[[ShownRun], Series],
    limits: Sequence[float] = (),
) -> Iterator[Chart]:
    curve = _Curve.of(sides, read)
    if not curve.now:
        return
    left = _leaves(curve)
    alerts = _alerts(sides.newest, curve.now) if name == "loss" else {}
    finding = _finding(curve, left, _ends(sides, name, curve))
    if limits:
        finding += f" Limit: {' and '.join(map(significant, limits))}."
    steps = sorted({*curve.steps, *alerts})
    yield Chart(
        name,
        title,
        finding,
        (*curve.columns, "alert"),
        tuple((*curve.row(step), alerts.get(step)) for step in steps),
        (*_layers(title.lower(), curve, left, alerts), *_limit_lines(limits)),
    )


def cost_charts(sides: ShownSides) -> Iterator[Chart]:
    """Yield step time and memory of the newest current run, if its steps are known."""
    for name, cost in COSTS.items():
        curve = _Curve.of(sides, cost.read)
        if curve.now:
            yield Chart(
                name,
                cost.title,
                _cost_finding(cost, sides, curve.now),
                curve.columns,
                tuple(map(curve.row, curve.steps)),
                # From 0 on: noise must not look like a leak.
                tuple(_layers(cost.unit, curve, zero=True)),
            )


@dataclass(frozen=True)
class _Curve:
    """One number over the steps: of the newest run, and of the baseline's runs that have it."""

    now: Series
    before: Sequence[Series]
    steps: Sequence[int]
    """Those that are drawn."""

    @classmethod
    def of(cls, sides: ShownSides, read: Callable[[ShownRun], Series]) -> _Curve:
        now, before = read(sides.newest), [one for one in map(read, sides.baseline) if one]
        return cls(now, before, kept_steps([now, *before]) if now else ())

    @property
    def columns(self) -> tuple[str, ...]:
        of_baseline = ("baseline, median", "baseline, least", "baseline, most")
        return ("step", "current", *(of_baseline if self.before else ()))

    def row(self, step: int) -> tuple[Cell, ...]:
        low, middle, high = self.range_at(step) or (None, None, None)
        drawn = (middle, low, high) if step in self.steps else (None,) * 3
        return (step, self.now.get(step), *(drawn if self.before else ()))

    def range_at(self, step: int) -> tuple[float, float, float] | None:
        """Return the least, median and largest finite value of the baseline's runs at a step."""
        values = finite([one[step] for one in self.before if step in one])
        return (min(values), statistics.median(values), max(values)) if values else None


def _cost_finding(cost: Cost, sides: ShownSides, now: Series) -> str:
    end: float | None = cost.of(list(now.values()))
    was = None
    if sides.found is not None:
        both = (sides.found.current.summary, sides.found.baseline.summary)
        end, was = (scaled(summary.get(cost.key), cost.factor) for summary in both)
    if end is None:
        return f"{len(now)} steps."
    said = f"The {cost.word} is {significant(end)} {cost.unit}"
    if was is not None:
        said += f" (baseline {significant(was)} {cost.unit})"
    return f"{said}."


def step_times(run: ShownRun) -> Series:
    """Return the time of each timed step in ms."""
    first = run.record.first_step + untimed_steps(run.record)
    rows = [
        row
        for row in run.first_rows()
        if row.get("step", 0) >= first and not (row.get("look") or row.get("profiled"))
    ]
    return {step: 1e3 * value for step, value in of_steps(rows, "wall_s").items()}


def memory(run: ShownRun) -> Series:
    """Return the memory after each step in MB: allocated on the device, else resident."""
    rows = run.first_rows()
    found = of_steps(rows, "allocated_bytes") or of_steps(rows, "rss_bytes")
    return {step: value / 2**20 for step, value in found.items()}


@dataclass(frozen=True)
class Cost:
    """What each step takes."""

    title: str
    unit: str
    word: str
    """What the sentence says."""
    key: str
    """Its figure in the summary of a comparison."""
    factor: float
    of: Callable[[list[float]], float]
    """The figure of a run alone."""
    read: Callable[[ShownRun], Series]


COSTS = {
    "steps": Cost(
        *("Time of each step", "ms", "median", "step_time_median_s", 1e3),
        statistics.median,
        step_times,
    ),
    "memory": Cost("Memory after each step", "MB", "peak", "max_mem_mb", 1.0, max, memory),
}


def _limit_lines(limits: Sequence[float]) -> Iterator[Layer]:
    """Yield the limits of gates as dashed lines across the chart."""
    if limits:
        rule = alt.Chart().mark_rule(color=BAD, strokeDash=[6, 3])
        yield Layer([{"limit": limit} for limit in limits], rule.encode(y="limit:Q"))


def _leaves(curve: _Curve) -> int | None:
    """Return the first step at which the current run is outside of the baseline's range."""
    for step, value in sorted(curve.now.items()):
        found = curve.range_at(step)
        if found and not found[0] <= value <= found[2]:
            return step
    return None


def _alerts(run: ShownRun, now: Series) -> dict[int, str]:
    """Return the first alert of each step that has a value."""
    found: dict[int, str] = {}
    for alert in run.record.alerts:
        if alert["step"] in now:
            found.setdefault(alert["step"], f"{alert['severity']}: {alert['type']}")
    return found


def _ends(sides: ShownSides, name: str, curve: _Curve) -> tuple[float | None, float | None]:
    """Return (current, baseline) at the end; of the loss, the figures of the comparison."""
    if name == "loss" and sides.found is not None:
        summaries = (sides.found.current.summary, sides.found.baseline.summary)
        ends = [number(summary.get("final_loss")) for summary in summaries]
        return ends[0], ends[1]
    end, *ends = (
        end_value([value for _, value in sorted(one.items())]) for one in (curve.now, *curve.before)
    )
    was = finite([one for one in ends if one is not None])
    return end, statistics.median(was) if was else None


def _finding(curve: _Curve, left: int | None, ends: tuple[float | None, float | None]) -> str:
    now, before = curve.now, curve.before
    odd = [step for step, value in sorted(now.items()) if not math.isfinite(value)]
    bad = f" {len(odd)} of {len(now)} steps are not finite, from step {odd[0]} on." if odd else ""
    end, was = ends
    if end is None:
        return f"{len(now)} steps.{bad}"
    count = max(2, sum(map(math.isfinite, now.values())) // TAIL_SHARE)
    said = f"Mean of the last {count} steps: {significant(end)}"
    if not math.isfinite(end) or len(now) < 2:
        said = f"Last step: {significant(end)}"
    if was is not None:
        change = signed(100 * (end / was - 1)) if was and math.isfinite(end) and end != was else ""
        said += f" (baseline {significant(was)}{f', {change}' if change else ''})"
    if not before:
        return f"{said}.{bad}"
    common = sum(any(step in one for one in before) for step in now)
    alone = len(before) == 1
    if left is None:
        inside = "equal to the baseline" if alone else f"within {len(before)} baseline runs"
        return f"{said}. It is {inside} at all {common} common steps.{bad}"
    apart = "differs from the baseline" if alone else f"leaves the {len(before)} baseline runs"
    return f"{said}. It first {apart} at step {left}.{bad}"


def _layers(
    title: str,
    curve: _Curve,
    left: int | None = None,
    alerts: Iterable[int] = (),
    *,
    zero: bool = False,
) -> Iterator[Layer]:
    now, scale = curve.now, alt.Scale(zero=zero)
    y = alt.Y("value:Q", title=title, scale=scale)
    band = {step: found for step in curve.steps if (found := curve.range_at(step))}
    if band:
        area = [{"step": step, "least": low, "most": high} for step, (low, _, high) in band.items()]
        marks = alt.Chart().mark_area(color=BASELINE, opacity=0.25)
        least = alt.Y("least:Q", scale=scale)
        yield Layer(area, marks.encode(x=STEP, y=least, y2="most:Q"))
    legend = alt.Legend() if band else None
    # The current run is drawn first and thicker, so that equal series show both.
    of_band: list[dict[str, Any]] = [
        {"step": step, "value": middle, "side": BEFORE} for step, (_, middle, _) in band.items()
    ]
    of_run: list[dict[str, Any]] = [
        {"step": step, "value": now[step], "side": NOW} for step in curve.steps if step in now
    ]
    for points, width in ((of_run, 2.5), (of_band, 1.25)):
        line = alt.Chart().mark_line(strokeWidth=width)
        yield Layer(
            [point for point in points if math.isfinite(float(point["value"]))],
            line.encode(
                x=STEP,
                y=y,
                color=alt.Color("side:N", scale=SIDE_COLOURS, legend=legend),
                strokeDash=alt.StrokeDash("side:N", scale=SIDE_DASHES, legend=legend),
            ),
        )
    if left is not None:
        rule = alt.Chart().mark_rule(color=BAD, strokeDash=[2, 2])
        yield Layer([{"step": left}], rule.encode(x=STEP))
    raised = [{"step": step, "value": now[step]} for step in alerts if finite([now[step]])]
    if raised:
        triangle = alt.Chart().mark_point(shape="triangle-up", color=BAD, filled=True, size=70)
        yield Layer(raised, triangle.encode(x=STEP, y=y, opacity=alt.value(1)))


def limits_by_metric(sides: ShownSides) -> dict[str, tuple[float, ...]]:
    """Return each gated metric, by the canary's name for it, with its limits that are numbers in
    the metric's unit."""
    limits: dict[str, list[float]] = defaultdict(list)
    for check in sides.found.checks if sides.found is not None else ():
        named = _GATE.fullmatch(check.name)
        if named is None:
            continue
        of_metric = limits[own_name(sides.newest.record, named[1])]
        # Of the limits in no unit, only a plain number has no interval.
        plain = check.scale == "" and check.interval is None and check.threshold is not None
        if plain and named[2] in IN_ITS_UNIT and check.threshold not in of_metric:
            assert check.threshold is not None
            of_metric.append(check.threshold)
    return {name: tuple(values) for name, values in limits.items()}


def gated_series(run: ShownRun, name: str) -> Series:
    """Return a gated metric by step; empty if the record has no curve of it."""
    curve = curve_in(run.record, name)
    return {} if curve is None else dict(zip(curve.steps, curve.values, strict=True))
