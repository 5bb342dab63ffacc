"""The page of a history: each canary on each machine, its metrics over the runs, and what changed
where."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from canary.baseline.history import drawers, entries
from canary.errors import InputError
from canary.report.charts.chart import Chart
from canary.report.charts.history import MOST_CHARTS, history_charts
from canary.report.history_view import headline
from canary.report.page import Page, page_text
from canary.report.trend_words import change_words, counted, sentence, told_once
from canary.trends.history import trends_of
from canary.trends.model import HistoryTrends, newest_worse

MOST_DRAWERS = 6
"""Canaries and machines on one page; those with the newest runs."""


def history_page(root: Path, shown: str, canary: str | None = None) -> str:
    """Return the page of a history; `shown` names it.

    Raises:
        InputError: it holds no runs, or none of this canary.
        RecordError: an entry cannot be read.
        MachineError: the package that finds changes is missing.
    """
    found = [
        (folder, stored)
        for folder in drawers(root)
        if canary in (None, folder.parent.name) and (stored := entries(folder))
    ]
    if not found:
        known = ", ".join(sorted({folder.parent.name for folder in drawers(root)}))
        raise InputError(
            f"{shown} holds no runs{f' of canary {canary!r}' if canary else ''}",
            f"it has: {known or 'none'}",
        )
    found.sort(key=lambda pair: pair[1][-1].start, reverse=True)
    charts: list[Chart] = []
    notes: list[str] = []
    shown_trends = [trends_of(folder) for folder, _ in found[:MOST_DRAWERS]]
    for number, trends in enumerate(shown_trends, start=1):
        prefix = f"{trends.canary} on {trends.machine}: " if len(found) > 1 else ""
        made = history_charts(trends, f"history{number}")
        charts += [chart.titled(f"{prefix}{chart.title}") for chart in made]
        notes += [f"{prefix}{note}" for note in _notes(trends)]
    if len(found) > MOST_DRAWERS:
        left = ", ".join(
            f"{folder.parent.name} on {folder.name}" for folder, _ in found[MOST_DRAWERS:]
        )
        notes.append(f"left out, name one with --canary: {left}")
    total = sum(len(stored) for _, stored in found)
    page = Page(
        title=f"history: {shown}",
        first_line=f"{_counted(total, 'run')} of {_counted(len(found), 'canary', 'canaries')}"
        f"{' and machines' if len(found) > 1 else ''}.{_worst(shown_trends)}",
        subtitle=shown if len(found) > 1 else f"{shown}: {_drawer(shown_trends[0])}",
        verdict="history",
        notes=tuple(notes),
    )
    return page_text(page, charts)


def _drawer(found: HistoryTrends) -> str:
    return f"{found.canary} on {found.machine}"


def _worst(found: Sequence[HistoryTrends]) -> str:
    """Return the newest change for the worse that holds, and how many more there are; without one,
    what a terminal says first."""
    once = [told_once(one) for one in found]
    worse = newest_worse(once)
    if not worse:
        said = [sentence(headline(one)) for one in once]
        many = len(once) > 1
        named = [f"{_drawer(one)}: {text}" for one, text in zip(once, said, strict=True)]
        return f" {' '.join(dict.fromkeys(named if many else said))}"
    _, series, change = worse[0]
    left = len(worse) - 1
    more = f" {counted(left, 'more change').capitalize()} for the worse." if left else ""
    return f" {sentence(change_words(series, change))}{more}"


def _notes(found: HistoryTrends) -> list[str]:
    of_series = [f"{series.title}: {note}" for series in found.series for note in series.notes]
    left = [series.title for series in found.series[MOST_CHARTS:]]
    more = [f"without a chart: {', '.join(left)}"] if left else []
    return [*found.notes, *of_series, *more]


def _counted(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or f'{one}s'}"
