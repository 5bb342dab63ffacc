"""The page of a history: each canary on each machine, its metrics over the runs, and what changed
where."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from canary.errors import InputError, counted
from canary.report.charts.chart import Chart
from canary.report.charts.history import MOST_CHARTS, history_charts
from canary.report.history_view import headline
from canary.report.page import Page, page_text
from canary.report.trend_words import sentence
from canary.trends.history import trends_in
from canary.trends.model import HistoryTrends

MOST_DRAWERS = 6
"""Canaries and machines on one page; those with the newest runs."""


def history_page(root: Path, shown: str, canary: str | None = None) -> str:
    """Return the page of a history; `shown` names it.

    Raises:
        InputError: it holds no runs, or none of this canary.
        RecordError: an entry cannot be read.
        MachineError: the package that finds changes is missing.
    """
    found = trends_in(root, shown, canary)
    if not found:
        raise InputError(f"{shown} holds no runs", "store one: canary save-baseline RUN FOLDER")
    several = len(found) > 1
    said: list[str] = []
    charts: list[Chart] = []
    notes: list[str] = []
    for number, drawer in enumerate(found[:MOST_DRAWERS], start=1):
        prefix = f"{_named(drawer)}: " if several else ""
        said.append(f"{prefix}{sentence(headline(drawer))}")
        made = history_charts(drawer, f"history{number}")
        charts += [replace(chart, title=f"{prefix}{chart.title}") for chart in made]
        notes += [f"{prefix}{note}" for note in _notes(drawer)]
    if left := found[MOST_DRAWERS:]:
        notes.append(f"left out, name one with --canary: {', '.join(map(_named, left))}")
    count = sum(len(one.series[0].points) for one in found if one.series)
    canaries = f"{len(found)} canaries and machines" if several else "1 canary"
    page = Page(
        title=f"history: {shown}",
        first_line=f"{counted(count, 'run')} of {canaries}. {' '.join(said)}",
        subtitle=shown if several else f"{shown}: {_named(found[0])}",
        verdict="history",
        notes=tuple(notes),
    )
    return page_text(page, charts)


def _named(found: HistoryTrends) -> str:
    return f"{found.canary} on {found.machine}"


def _notes(found: HistoryTrends) -> list[str]:
    of_series = [f"{series.title}: {note}" for series in found.series for note in series.notes]
    left = [series.title for series in found.series[MOST_CHARTS:]]
    more = [f"without a chart: {', '.join(left)}"] if left else []
    return [*found.notes, *of_series, *more]
