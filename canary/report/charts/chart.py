"""A chart: what it shows in one sentence, its numbers, and its picture.

Altair describes the picture and vl-convert draws it as SVG, so a page needs no script to show it.
Both come with the extra `[report]`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import vl_convert

from canary.record import jsonio
from canary.report.charts.theme import LIGHT
from canary.report.escape import on_lines

MOST = 120
"""Points of one series in a chart."""

Cell = float | int | str | None
Points = Sequence[Mapping[str, Any]]

WIDTH, HEIGHT = 420, 250
"""Units of a picture; pages scale it to the width of its column."""

INK, FAINT, LINE, BASELINE, CURRENT, BAD, GOOD = (
    LIGHT[name] for name in ("ink", "faint", "line", "baseline", "current", "bad", "good")
)
OTHERS = tuple(LIGHT[name] for name in ("blue", "purple", "teal", "brown"))

BEFORE, NOW = "baseline", "current"
SIDE_COLOURS = alt.Scale(domain=[BEFORE, NOW], range=[BASELINE, CURRENT])
SIDE_DASHES = alt.Scale(domain=[BEFORE, NOW], range=[[4, 3], [1, 0]])


@dataclass(frozen=True)
class Layer:
    """One kind of marks of a picture, and their points."""

    points: Points
    chart: alt.Chart


@dataclass(frozen=True)
class Chart:
    """One chart of a page."""

    name: str
    """Names its place in the page and its CSV file."""
    title: str
    finding: str
    """One sentence with the numbers that matter."""
    columns: tuple[str, ...]
    """Names of the table's columns, with units."""
    rows: tuple[tuple[Cell, ...], ...]
    layers: tuple[Layer, ...]

    def spec(self, *, validate: bool = False) -> dict[str, Any]:
        """Return the Vega-Lite specification; validating it takes ten times as long."""
        names = [f"points{place}" for place in range(len(self.layers))]
        # Altair copies and checks what it holds, so the points are added afterwards.
        layers = [
            layer.chart.properties(data=alt.NamedData(name))
            for name, layer in zip(names, self.layers, strict=True)
        ]
        whole = alt.layer(*layers).properties(width=WIDTH, height=HEIGHT)
        found: dict[str, Any] = whole.to_dict(validate=validate)
        found["config"] = _config()
        points = (layer.points for layer in self.layers)
        found["datasets"] = dict(zip(names, points, strict=True))
        return found

    def svg(self) -> str:
        """Draw it."""
        # A control character in a record's text would end the engine or the process.
        spec = jsonio.dumps(on_lines(self.spec()))
        return str(vl_convert.vegalite_to_svg(spec, allowed_base_urls=[]))


@functools.cache
def _config() -> dict[str, Any]:
    found: dict[str, Any] = alt.Config(
        background="transparent",
        autosize=alt.AutoSizeParams(type="fit", contains="padding"),
        font="system-ui, sans-serif",
        # Room for readers' fonts, which may be wider than the one that measured the labels.
        padding={"left": 14, "top": 4, "right": 10, "bottom": 4},
        view=alt.ViewConfig(stroke=None),
        axis=alt.AxisConfig(
            labelColor=FAINT,
            titleColor=FAINT,
            labelFontSize=12,
            titleFontSize=12,
            titleFontWeight="normal",
            titlePadding=10,
            gridColor=LINE,
            domainColor=LINE,
            tickColor=LINE,
            labelLimit=190,
            labelOverlap=True,
            labelFlush=False,
        ),
        axisX=alt.AxisConfig(labelSeparation=4),
        legend=alt.LegendConfig(
            orient="top",
            title=None,
            labelColor=INK,
            labelFontSize=12,
            symbolStrokeWidth=2,
            columnPadding=22,
            labelLimit=160,
        ),
        text=alt.MarkConfig(color=INK, fontSize=12),
    ).to_dict()
    return found


def of_kinds(
    field: str, styles: Mapping[str, tuple[str, str]], points: Points
) -> tuple[alt.Color, alt.Shape]:
    """Return colour and shape by a text field of the points, in the order of the `styles`."""
    there = {point[field] for point in points}
    domain = [kind for kind in styles if kind in there]
    colours, shapes = (
        alt.Scale(domain=domain, range=[styles[kind][part] for kind in domain]) for part in (0, 1)
    )
    return alt.Color(f"{field}:N", scale=colours), alt.Shape(f"{field}:N", scale=shapes)


def kept_steps(series: Sequence[Mapping[int, float]]) -> list[int]:
    """Return the steps to draw, in order.

    Each bucket keeps the step of each series' smallest and of its largest finite value. First and
    last step stay. Steps whose value is not finite stay too, as many as fit."""
    steps = sorted({step for one in series for step in one})
    if len(steps) <= MOST:
        return steps
    kept = {steps[0], steps[-1]}
    buckets = MOST // 2 - 1
    for number in range(buckets):
        bucket = steps[number * len(steps) // buckets : (number + 1) * len(steps) // buckets]
        for one in series:
            values = [
                (one[step], step) for step in bucket if math.isfinite(one.get(step, math.nan))
            ]
            if values:
                kept |= {min(values)[1], max(values)[1]}
    odd = [step for step in steps if any(not math.isfinite(one.get(step, 0.0)) for one in series)]
    return sorted(kept.union(odd[:MOST]))
