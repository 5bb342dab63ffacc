"""The history of a canary on a machine: metrics over runs, with periods, red runs and noise."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from canary.record.end_loss import end_loss
from canary.record.types import RunRecord
from canary.report.charts.chart import (
    BAD,
    BASELINE,
    CURRENT,
    FAINT,
    GOOD,
    Chart,
    Layer,
    close_scale,
)
from canary.report.charts.thinning import kept_steps
from canary.report.numbers import signed, significant

LEAST_FOR_BAND = 3
"""Runs of a period from which on its own spread is its noise band."""
WIDTH_OF_BAND = 2.0
"""Standard deviations on each side of the period's median."""


@dataclass(frozen=True)
class Metric:
    """A metric that the page follows over the runs."""

    name: str
    title: str
    unit: str
    read: Callable[[RunRecord], float | None]
    lower_is_better: bool = True


METRICS = (
    Metric("step_time", "Step time", "ms", lambda record: 1e3 * record.perf.step_time.median),
    Metric(
        "tokens", "Tokens per second", "", lambda record: record.perf.approx_tokens_per_sec, False
    ),
    Metric("memory", "Peak memory", "MB", lambda record: record.perf.max_mem_mb),
    Metric("loss", "Final loss", "", end_loss),
)


@dataclass(frozen=True)
class StoredRun:
    """One run of a history."""

    record: RunRecord
    commit: str
    verdict: str
    period: int | None
    """None for a red run."""
    accepted: bool


@dataclass(frozen=True)
class _Point:
    number: int
    run: StoredRun
    value: float


def history_charts(
    runs: Sequence[StoredRun], name: str, noise: Mapping[str, float]
) -> Iterator[Chart]:
    """Yield a chart per metric over the runs, oldest first.

    Args:
        runs: the runs.
        name: begins the charts' names.
        noise: measured standard deviation of a run's logarithm, by metric.
    """
    machines = _machine_changes(runs)
    for metric in METRICS:
        points = [
            _Point(number, run, value)
            for number, run in enumerate(runs, start=1)
            if (value := metric.read(run.record)) is not None and math.isfinite(value)
        ]
        if points:
            yield _chart(metric, points, name, noise.get(metric.name), machines)


def _machine_changes(runs: Sequence[StoredRun]) -> dict[int, str]:
    """Return the runs before which driver, processor or packages changed, with what changed."""
    found: dict[int, str] = {}
    for number, (before, now) in enumerate(itertools.pairwise(runs), start=2):
        facts = [_facts(run.record) for run in (before, now)]
        names = [key for key in facts[1] if facts[0].get(key) != facts[1][key]]
        if names:
            found[number] = f"{', '.join(names[:3])}{' ...' if len(names) > 3 else ''}"
    return found


def _facts(record: RunRecord) -> dict[str, Any]:
    environment = record.env
    facts = {key: environment.get(key) for key in ("python", "driver", "cpu", "cpu_usable")}
    return {**facts, **(environment.get("packages") or {})}


def _chart(
    metric: Metric,
    points: Sequence[_Point],
    name: str,
    noise: float | None,
    machines: Mapping[int, str],
) -> Chart:
    kept = set(kept_steps([{point.number: point.value for point in points}]))
    special = {p.number for p in points if p.run.accepted or p.run.period is None}
    shown = [point for point in points if point.number in kept | special]
    bands = _bands(points, noise)
    rows = tuple(
        (
            point.number,
            point.run.record.timestamp[:16],
            point.run.commit,
            point.run.verdict or "",
            point.run.period,
            point.value,
            machines.get(point.number),
        )
        for point in shown
    )
    value = f"{metric.title.lower()}{f', {metric.unit}' if metric.unit else ''}"
    columns = ("run", "start", "commit", "verdict", "period", value, "machine changed")
    return Chart(
        f"{name}-{metric.name}",
        metric.title,
        _finding(metric, points, bands, machines),
        columns,
        rows,
        tuple(_layers(metric, shown, bands, machines)),
    )


@dataclass(frozen=True)
class _Band:
    period: int
    first: int
    last: int
    low: float
    middle: float
    high: float


def _bands(points: Sequence[_Point], noise: float | None) -> list[_Band]:
    """Return each period's median and noise band: measured noise, or the period's own spread."""
    periods: dict[int, list[_Point]] = {}
    for point in points:
        if point.run.period is not None:
            periods.setdefault(point.run.period, []).append(point)
    found = []
    for period, members in periods.items():
        values = [point.value for point in members]
        middle = statistics.median(values)
        spread = noise * abs(middle) if noise is not None else None
        if spread is None and len(values) >= LEAST_FOR_BAND:
            spread = statistics.stdev(values)
        reach = WIDTH_OF_BAND * (spread or 0.0)
        first, last = members[0].number, members[-1].number
        found.append(_Band(period, first, last, middle - reach, middle, middle + reach))
    return found


def _finding(
    metric: Metric,
    points: Sequence[_Point],
    bands: Sequence[_Band],
    machines: Mapping[int, str],
) -> str:
    newest = points[-1]
    unit = f" {metric.unit}" if metric.unit else ""
    said = f"{metric.title} of the newest of {len(points)} runs: {significant(newest.value)}{unit}"
    band = bands[-1] if bands else None
    if band is not None and newest.number >= band.first and band.middle:
        change = signed(100 * (newest.value / band.middle - 1))
        change = "equal to" if newest.value == band.middle else f"{change} against"
        inside = band.low <= newest.value <= band.high
        where = "inside" if inside else "outside"
        wide = f"{WIDTH_OF_BAND:g} standard deviations"
        of_band = f" and {where} the noise band of {wide}" if reach(band) else ""
        said += f", {change} its period's median{of_band}"
    red = sum(point.run.period is None for point in points)
    more = [f"{red} failed" if red else "", f"{len(bands)} periods" if len(bands) > 1 else ""]
    times = "once" if len(machines) == 1 else f"{len(machines)} times"
    more.append(f"the machine changed {times}" if machines else "")
    rest = "; ".join(filter(None, more))
    return f"{said}{f' ({rest})' if rest else ''}."


def reach(band: _Band) -> bool:
    """Return whether the band has a width."""
    return band.high > band.low


def _layers(
    metric: Metric, points: Sequence[_Point], bands: Sequence[_Band], machines: Mapping[int, str]
) -> Iterator[Layer]:
    x = alt.X(
        "run:Q",
        title="run, oldest first",
        axis=alt.Axis(tickMinStep=1, grid=False),
        scale=alt.Scale(zero=False, nice=False),
    )
    title = f"{metric.title.lower()}{f', {metric.unit}' if metric.unit else ''}"
    y = alt.Y("value:Q", title=title, scale=close_scale([point.value for point in points]))
    areas = [
        {"from": band.first - 0.4, "to": band.last + 0.4, "low": band.low, "high": band.high}
        for band in bands
        if reach(band)
    ]
    if areas:
        area = alt.Chart().mark_rect(color=BASELINE, opacity=0.2)
        yield Layer(areas, area.encode(x="from:Q", x2="to:Q", y="low:Q", y2="high:Q"))
    middles = [
        {"from": band.first - 0.4, "to": band.last + 0.4, "value": band.middle} for band in bands
    ]
    if middles:
        line = alt.Chart().mark_rule(color=BASELINE, strokeDash=[4, 3])
        yield Layer(middles, line.encode(x="from:Q", x2="to:Q", y=y))
    kinds = [{"run": p.number, "value": p.value, "kind": _kind(p.run)} for p in points]
    shown = {kind["kind"] for kind in kinds}
    domain = [kind for kind in KINDS if kind in shown]
    colours = [KINDS[kind][0] for kind in domain]
    shapes = [KINDS[kind][1] for kind in domain]
    marks = alt.Chart().mark_point(filled=True, size=40, opacity=0.9)
    yield Layer(
        kinds,
        marks.encode(
            x=x,
            y=y,
            color=alt.Color("kind:N", scale=alt.Scale(domain=domain, range=colours)),
            shape=alt.Shape("kind:N", scale=alt.Scale(domain=domain, range=shapes)),
        ),
    )
    changed = [{"run": number - 0.5} for number in machines]
    if changed:
        rule = alt.Chart().mark_rule(color=FAINT, strokeDash=[2, 3])
        yield Layer(changed[:MOST_RULES], rule.encode(x=x))


MOST_RULES = 100
KINDS = {
    "baseline": (CURRENT, "circle"),
    "failed": (BAD, "cross"),
    "accepted": (GOOD, "triangle-up"),
}
"""Kinds of runs, each with its colour and shape."""


def _kind(run: StoredRun) -> str:
    if run.period is None:
        return "failed"
    return "accepted" if run.accepted else "baseline"
