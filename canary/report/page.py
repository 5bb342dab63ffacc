"""A page: one HTML file that needs nothing else, readable without scripts.

Every text is data: the template escapes it, and the page's policy runs only the script that stands
in this repository.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from canary.compare.report import Place
from canary.record import jsonio
from canary.report.charts.chart import Chart
from canary.report.escape import on_lines
from canary.report.numbers import amount
from canary.report.render import asset, filled_page, source_of
from canary.report.view import View


@dataclass(frozen=True)
class StageRow:
    """One stage of the exact lane."""

    name: str
    state: str
    """`equal`, `first` (the first that differs), `differs` or `untold`."""
    words: str
    text: str


@dataclass(frozen=True)
class ShownChart:
    """A chart as the template shows it."""

    name: str
    title: str
    finding: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    picture: Markup
    json: Markup


@dataclass(frozen=True)
class Choice:
    """Two columns of figures behind a button."""

    name: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Page:
    """Everything that the page shows, as strings."""

    title: str
    first_line: str
    subtitle: str = ""
    verdict: str = ""
    mark: str = ""
    answers: tuple[tuple[str, str], ...] = ()
    places: tuple[Place, ...] = ()
    stages_finding: str = ""
    stages: tuple[StageRow, ...] = ()
    view: View | None = None
    """Of a comparison: causes, summary and differences."""
    table: str = "Checks"
    """Title of the large table, of checks, levels or switches."""
    headings: tuple[str, ...] = ()
    checks: tuple[tuple[str, ...], ...] = ()
    """Its cells; the last one of a row is its status."""
    legend: str = ""
    choices: tuple[Choice, ...] = ()
    """Of them one is shown, the last one at first."""
    alerts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


Charted = tuple[Page, Iterable[Chart]]
"""A page and its charts."""


def page_text(page: Page, charts: Sequence[Chart] = ()) -> str:
    """Return the page with its charts as HTML."""
    return joined_text(page.title, ((page, charts),))


def joined_text(title: str, parts: Sequence[Charted]) -> str:
    """Return several pages as one file with a title. A list of their first lines comes first."""
    style, script = asset("report.css"), asset("report.js")
    policy = "; ".join(
        (
            "default-src 'none'",
            f"style-src {source_of(style)}",
            f"script-src {source_of(script)}",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    pages = []
    for number, (page, charts) in enumerate(parts, start=1):
        prefix = f"part{number}-" if len(parts) > 1 else ""
        pages.append((page, tuple(shown_chart(chart, prefix) for chart in charts), prefix))
    return filled_page(
        "report.html.jinja",
        title=title,
        pages=pages,
        listed=len(pages) > 1,
        policy=policy,
        style=Markup(style),
        script=Markup(script),
    )


def shown_chart(chart: Chart, prefix: str = "") -> ShownChart:
    """Draw a chart; the prefix begins its name."""
    title, finding, *columns = on_lines((chart.title, chart.finding, *chart.columns))
    label = escape(f"{title}. {finding}")
    drawn = chart.svg().replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    numbers = {"columns": columns, "rows": [list(row) for row in chart.rows]}
    return ShownChart(
        f"{prefix}{chart.name}",
        title,
        finding,
        tuple(columns),
        tuple(
            tuple("" if value is None else str(on_lines(amount(value))) for value in row)
            for row in chart.rows
        ),
        Markup(drawn),
        Markup(_in_script(numbers)),
    )


def _in_script(value: object) -> str:
    """Return JSON that cannot end the script element around it."""
    text = jsonio.dumps(value)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
