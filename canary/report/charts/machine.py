"""The machine during both sides' runs: utilisation, clocks, and work of others."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import altair as alt

from canary.record.jsonio import number
from canary.record.types import RunRecord
from canary.report.charts.chart import BEFORE, NOW, SIDE_COLOURS, SIDE_SHAPES, Chart, Layer
from canary.report.charts.sides import ShownRun, ShownSides


@dataclass(frozen=True)
class _Reading:
    """One percentage of a run."""

    name: str
    read: Callable[[RunRecord], float | None]


def _sampled(name: str) -> Callable[[RunRecord], float | None]:
    def read(record: RunRecord) -> float | None:
        found = record.memory.sampled.get(name)
        value = number(found.get("mean")) if isinstance(found, dict) else None
        return float(value) if isinstance(value, int | float) else None

    return read


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


MOST_POINTS = 500
"""Readings in the chart; those of the newest runs."""

READINGS = (
    _Reading("GPU busy", lambda record: record.perf.gpu_utilization_avg),
    _Reading("GPU memory busy", _sampled("gpu_memory_utilization")),
    _Reading("CPU of its cores", lambda record: record.host.cpu_utilization_of_cores),
    _Reading("CPU of the machine", _sampled("machine_cpu_percent")),
    _Reading("waiting for data", lambda record: record.perf.dataloader_wait_pct),
    _Reading("waiting for a core", lambda record: _percent(record.host.run_delay)),
    _Reading("GIL contention", lambda record: _percent(record.host.gil_contention)),
)
USES = 4
"""The first readings, of use; the others are of waits."""
LED_BY = 2
LEAST_WAIT = 5.0
"""Percent; shorter waits are only in the chart."""


def machine_charts(sides: ShownSides) -> Iterator[Chart]:
    """Yield the chart of both sides' machines; nothing if nothing was sampled."""
    points = [*_points(sides.baseline, BEFORE), *_points(sides.current, NOW)][-MOST_POINTS:]
    if not points:
        return
    names = [reading.name for reading in READINGS]
    legend = alt.Legend() if sides.baseline else None
    chart = (
        alt.Chart()
        .mark_point(filled=True, size=70, opacity=0.8)
        .encode(
            x=alt.X("percent:Q", title="percent", scale=alt.Scale(domainMin=0)),
            y=alt.Y("reading:N", title=None, sort=names),
            color=alt.Color("side:N", scale=SIDE_COLOURS, legend=legend),
            shape=alt.Shape("side:N", scale=SIDE_SHAPES, legend=legend),
        )
    )
    rows = tuple((p["reading"], p["side"], p["run"], p["percent"]) for p in points)
    finding = _finding(sides)
    yield Chart(
        "machine",
        "The machine",
        finding,
        ("reading", "side", "run", "percent"),
        rows,
        (Layer(points, chart),),
    )


def _points(runs: tuple[ShownRun, ...], side: str) -> Iterator[dict[str, str | float]]:
    for run in runs:
        for reading in READINGS:
            value = reading.read(run.record)
            if value is not None:
                yield {
                    "reading": reading.name,
                    "side": side,
                    "run": run.record.run_id,
                    "percent": value,
                }


def _finding(sides: ShownSides) -> str:
    now = sides.newest.record
    values = [(reading, reading.read(now)) for reading in READINGS]
    used = [pair for pair in values[:USES] if pair[1] is not None][:LED_BY]
    waits = [pair for pair in values[USES:] if (pair[1] or 0.0) >= LEAST_WAIT]
    said = []
    for reading, value in (*used, *waits):
        was = [known for run in sides.baseline if (known := reading.read(run.record)) is not None]
        if value is not None:
            before = f" (baseline {statistics.median(was):.1f}%)" if was else ""
            said.append(f"{reading.name} {value:.1f}%{before}")
    clocks = _clocks(now)
    return f"{'; '.join(said) or 'No wait was long'}{clocks}."


def _clocks(record: RunRecord) -> str:
    """Return what the GPU's health says, if anything slowed it."""
    reasons = record.gpu_health.get("throttle_reasons")
    if not isinstance(reasons, list) or not reasons:
        return ""
    return f"; throttled: {', '.join(map(str, reasons))[:80]}"
