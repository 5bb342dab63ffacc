"""The report's charts as SVG files of their own, readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence

from canary.compare.paths import Compared
from canary.report.charts.sides import sides_of
from canary.report.charts.theme import LIGHT
from canary.report.comparison_page import charts_of
from tools.gallery.facts import Picture

MOST_BYTES = 20_000


class PictureError(Exception):
    """A chart cannot be shown. The text says why."""


def drawn(compared: Compared, names: Sequence[str], stem: str) -> dict[Picture, str]:
    """Return the named charts of the report as SVG; their files are called `STEM.CHART.svg`.

    Raises:
        PictureError: the report has no such chart, or it is too large.
    """
    charts = {chart.name: chart for chart in charts_of(sides_of(compared))}
    missing = [name for name in names if name not in charts]
    if missing:
        raise PictureError(
            f"the report has no chart {', '.join(missing)}, only {', '.join(charts)}"
        )
    found: dict[Picture, str] = {}
    for name in names:
        chart, file = charts[name], f"{stem}.{name}.svg"
        svg = on_paper(chart.svg())
        if (size := len(svg.encode())) > MOST_BYTES:
            raise PictureError(f"{file} has {size:,} bytes; the limit is {MOST_BYTES:,}")
        found[Picture(file=file, title=chart.title, finding=chart.finding)] = svg
    return found


def on_paper(svg: str) -> str:
    """Return a picture on the light colour of paper; those of the report are transparent."""
    head, end, rest = svg.partition(">")
    return f'{head}{end}<rect width="100%" height="100%" fill="{LIGHT["paper"]}"/>{rest}'
