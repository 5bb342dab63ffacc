"""How much equal runs vary, and how small a change a comparison finds."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import altair as alt

from canary.report.charts.chart import (
    BASELINE,
    CURRENT,
    FAINT,
    OTHERS,
    Chart,
    Layer,
    close_scale,
)

RUN = alt.X(
    "run:Q",
    title="run",
    axis=alt.Axis(tickMinStep=1, grid=False),
    scale=alt.Scale(zero=False, padding=14),
)
LARGEST_PCT = 1000.0
"""A change from which on nothing is found."""
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross")


@dataclass(frozen=True)
class Measured:
    """One metric of equal runs."""

    name: str
    words: str
    unit: str
    values: Sequence[float]
    """One per run, in the order in which they ran."""
    run_sd: float
    """Relative standard deviation of one run."""
    detectable_pct: Mapping[int, float]
    """The smallest change in percent that is found, by number of pairs; empty if not gated."""


def noise_charts(metrics: Sequence[Measured]) -> Iterator[Chart]:
    """Yield what is detectable, then the runs of each gated metric."""
    gated = [metric for metric in metrics if metric.detectable_pct]
    if gated:
        yield _detectable(gated)
    for metric in gated:
        yield _runs(metric)


def _detectable(gated: Sequence[Measured]) -> Chart:
    rows = tuple(
        (metric.words, pairs, change)
        for metric in gated
        for pairs, change in metric.detectable_pct.items()
    )
    points = [
        {"metric": name, "pairs": pairs, "change": change}
        for name, pairs, change in rows
        if change < LARGEST_PCT
    ]
    names = [metric.words for metric in gated]
    colours = alt.Scale(domain=names, range=[CURRENT, *OTHERS][: len(names)])
    shapes = alt.Scale(domain=names, range=list(SHAPES[: len(names)]))
    legend = alt.Legend(columns=2)
    pairs = sorted({count for metric in gated for count in metric.detectable_pct})
    encoded = {
        "x": alt.X("pairs:Q", title="pairs of runs", axis=alt.Axis(values=pairs, grid=False)),
        "y": alt.Y(
            "change:Q",
            title="smallest change found, %",
            scale=alt.Scale(type="log"),
            axis=alt.Axis(tickCount=4),
        ),
        "color": alt.Color("metric:N", scale=colours, legend=legend),
    }
    layers = (
        Layer(points, alt.Chart().mark_line(strokeWidth=1.5).encode(**encoded)),
        Layer(
            points,
            alt.Chart()
            .mark_point(filled=True, size=55, opacity=1)
            .encode(**encoded, shape=alt.Shape("metric:N", scale=shapes, legend=legend)),
        ),
    )
    first = gated[0]
    fewest, most = min(first.detectable_pct), max(first.detectable_pct)
    finding = (
        f"{first.words}: {_pairs(fewest)} finds {_change(first.detectable_pct[fewest])} in 4 of 5 "
        f"comparisons, {_pairs(most)} find {_change(first.detectable_pct[most])}."
    )
    columns = ("metric", "pairs", "smallest change, %")
    return Chart("detectable", "Smallest change found", finding, columns, rows, layers)


def _change(percent: float) -> str:
    return f"a change of {percent:,.1f}%" if percent < LARGEST_PCT else "none below 1,000%"


def _pairs(count: int) -> str:
    return f"{count} pair{'' if count == 1 else 's'}"


def _runs(metric: Measured) -> Chart:
    mean = statistics.fmean(metric.values)
    points = [{"run": number, "value": v} for number, v in enumerate(metric.values, start=1)]
    band = [{"low": mean * (1 - metric.run_sd), "high": mean * (1 + metric.run_sd)}]
    title = f"{metric.words}, {metric.unit}" if metric.unit else metric.words
    scale = close_scale(metric.values)
    area = alt.Chart().mark_rect(color=BASELINE, opacity=0.2)
    layers = (
        Layer(band, area.encode(y=alt.Y("low:Q", scale=scale), y2="high:Q")),
        Layer([{"mean": mean}], alt.Chart().mark_rule(color=FAINT).encode(y="mean:Q")),
        Layer(
            points,
            alt.Chart()
            .mark_point(filled=True, size=60, opacity=1, color=CURRENT)
            .encode(x=RUN, y=alt.Y("value:Q", title=title, scale=scale)),
        ),
    )
    unit = f" {metric.unit}" if metric.unit else ""
    finding = (
        f"{len(metric.values)} equal runs: {mean:,.1f}{unit} on average, from "
        f"{min(metric.values):,.1f} to {max(metric.values):,.1f}. The band is one standard "
        f"deviation of a run, {100 * metric.run_sd:.2f}%."
    )
    return Chart(
        f"runs_{metric.name}",
        metric.words[:1].upper() + metric.words[1:],
        finding,
        ("run", title),
        tuple((point["run"], point["value"]) for point in points),
        layers,
    )
