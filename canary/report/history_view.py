"""The trends of a history as people read them: text for a terminal, Markdown, or JSON."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

from canary.compare.checks import CHECKS
from canary.errors import counted, cut
from canary.report.bisect_hint import Hint, commits_command
from canary.report.document import json_lines
from canary.report.escape import on_lines
from canary.report.lines import Cells, aligned, fitting
from canary.report.numbers import amount, signed
from canary.report.render import check_format, filled, tidy
from canary.report.trend_words import (
    DERIVED,
    LARGEST_PERCENT,
    change_words,
    in_one_commit,
    place_words,
    point_words,
    sentence,
)
from canary.trends.model import ChangePoint, HistoryTrends, Series

Count = Callable[[str, str], int | None]
"""Returns how many commits lie between two; None if unknown."""

VERSION = 1
BLOCKS = 12
"""Blocks of a sparkline; more runs are thinned."""
LONGEST_NAME = 26
HEADINGS = ("metric", "newest", "runs", "since when")
NO_CHANGE = "no change"


@dataclass(frozen=True)
class Finding:
    """A change of a series."""

    sentence: str
    more: tuple[str, ...]
    hint: Hint | None = None
    """How to find the commit."""


def history_text(
    found: Sequence[HistoryTrends],
    form: str,
    width: int | None = None,
    shown: str = "",
    count: Count = lambda good, bad: None,
) -> str:
    """Return the trends of all drawers as text, Markdown or JSON; `shown` names the history. Text
    has lines that fit the width, if there is one.

    `count`: counts the commits between two.

    Raises:
        UsageError: unknown format.
    """
    check_format(form)
    if form == "json":
        return json_lines({"schema_version": VERSION, "histories": list(map(_document, found))})
    if not found:
        return tidy(f"{shown} holds no runs")
    drawers = [on_lines(_view(one, count)) for one in found]
    for view in drawers:
        short = [(cut(row[0], LONGEST_NAME), *row[1:]) for row in view["table"]]
        view["lines"] = aligned(fitting(short, width and width - 2))
    hints = (finding.hint for view in drawers for finding in view["findings"])
    whole = [hint.command for hint in hints if hint]
    return filled("history", form, width, whole, drawers=drawers)


def _document(found: HistoryTrends) -> dict[str, Any]:
    """Return the trends of a drawer as plain data, with the newest value of each metric."""
    whole = asdict(found)
    del whole["config_file"]
    whole["machine_changes"] = [
        {"place": place, "changes": changes} for place, changes in whole["machine_changes"]
    ]
    for series in whole["series"]:
        values = [point["value"] for point in series["points"] if point["value"] is not None]
        series["newest"] = values[-1] if values else None
    return whole


def headline(found: HistoryTrends) -> str:
    """Return what got worse and holds, in one line."""
    open_ = [series for series in found.series if _open(series)]
    if open_:
        return f"{listed([series.title for series in open_])} got worse"
    judged = sum(bool(series.levels) for series in found.series)
    if not judged:
        return "too few runs to judge"
    return f"no metric got worse ({judged} of {len(found.series)} judged)"


def listed(names: Sequence[str]) -> str:
    """Return `a, b and c`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _open(series: Series) -> list[ChangePoint]:
    return [one for one in series.changes if one.worse and one.standing == "confirmed"]


def _view(found: HistoryTrends, count: Count) -> dict[str, Any]:
    """Return what the templates show of one canary on one machine; the table's headings first."""
    points = found.series[0].points if found.series else ()
    runs = counted(len(points), "run")
    days = list(dict.fromkeys((points[0].start[:10], points[-1].start[:10]))) if points else []
    span = {0: "", 1: f" on {days[0]}" if days else ""}.get(len(days), f", {' to '.join(days)}")
    return {
        "title": f"{found.canary} on {found.machine}: {runs}{span}",
        "headline": sentence(headline(found)),
        "table": [HEADINGS, *map(_row, found.series)],
        "findings": [one for series in found.series for one in _findings(found, series, count)],
        "notes": [sentence(note) for note in (*found.notes, *_notes(found.series))],
    }


def _notes(series: Sequence[Series]) -> Iterator[str]:
    """Yield each note once, with the metrics that it is about."""
    titles: dict[str, list[str]] = {}
    for one in series:
        for note in one.notes:
            titles.setdefault(note, []).append(one.title)
    for note, names in titles.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        yield f"{', '.join(names[:3])}{more}: {note}"


def _row(series: Series) -> Cells:
    values = [point.value for point in series.points if point.value is not None]
    return (
        series.title,
        amount(values[-1], series.unit.removeprefix("tokens/s")) if values else "-",
        sparkline(thinned(values, BLOCKS)) if values else "",
        _since(series),
    )


HEIGHTS = "▁▂▃▄▅▆▇█"
LEAST_RANGE = 0.1
"""Share of the median that the blocks span at least: noise must not look like mountains."""


def sparkline(values: Sequence[float]) -> str:
    """Return one block per value."""
    middle, low, high = statistics.median(values), min(values), max(values)
    span = max(high - low, LEAST_RANGE * abs(middle))
    if span == 0:
        return HEIGHTS[len(HEIGHTS) // 2] * len(values)
    bottom = (low + high - span) / 2
    places = (int(len(HEIGHTS) * (value - bottom) / span) for value in values)
    return "".join(HEIGHTS[min(place, len(HEIGHTS) - 1)] for place in places)


NEWEST = 3
"""Values that are never thinned: the newest change waits there."""


def thinned(values: Sequence[float], most: int) -> list[float]:
    """Return at most `most` values: the newest, and before them medians of neighbours, of which no
    spike is left."""
    if len(values) <= most:
        return list(values)
    older, left = values[:-NEWEST], most - NEWEST
    ends = [round(number * len(older) / left) for number in range(left + 1)]
    medians = [statistics.median(older[first:end]) for first, end in pairwise(ends)]
    return [*medians, *values[-NEWEST:]]


def _since(series: Series) -> str:
    """Return the newest fact: where the series is since when."""
    if not series.changes:
        return NO_CHANGE if series.levels else ""
    newest = series.changes[-1]
    found = (_open(series) or [newest])[-1]
    return f"{_size(found)} since {place_words(series, found)}"


def _size(change: ChangePoint) -> str:
    if abs(change.percent) < LARGEST_PERCENT:
        return signed(change.percent)
    return "up" if change.percent > 0 else "down"


def _findings(drawer: HistoryTrends, series: Series, count: Count) -> list[Finding]:
    """Return the changes, the newest first; the last one with the levels."""
    found = [
        Finding(
            sentence(change_words(series, change)),
            (_between(series, change),),
            change_hint(drawer, series, change, count),
        )
        for change in reversed(series.changes)
    ]
    if found:
        found[-1] = replace(found[-1], more=(*found[-1].more, _levels(series)))
    return [replace(one, more=tuple(filter(None, one.more))) for one in found]


def _between(series: Series, change: ChangePoint) -> str:
    """Return the runs and commits between which a change happened."""
    first, last = change.within
    old, new = series.points[max(0, first - 1)], series.points[last]
    runs = f"at run {last + 1}" if first == last else f"in one of runs {first + 1} to {last + 1}"
    if not old.commit or not new.commit or in_one_commit(series, change):
        return f"It began {runs}."
    return f"It began {runs}: after {point_words(old)}, with {point_words(new)} at the latest."


def _levels(series: Series) -> str:
    """Return the newest levels with their runs."""
    kept = series.levels[-MOST_LEVELS:]
    told = [
        f"{amount(level.center, series.unit)} in {_runs(level.first + 1, level.last + 1)}"
        for level in kept
    ]
    all_ = len(series.levels)
    more = f"the newest {MOST_LEVELS} of {all_}: " if all_ > MOST_LEVELS else ""
    return f"Levels: {more}{', '.join(told)}." if told else ""


def _runs(first: int, last: int) -> str:
    return f"run {first}" if first == last else f"runs {first} to {last}"


MOST_LEVELS = 4


def change_hint(
    found: HistoryTrends, series: Series, change: ChangePoint, count: Count
) -> Hint | None:
    """Return how to find the commit of a confirmed change for the worse; None for another change,
    for a metric that follows from another one, or if nothing is to search."""
    first, last = change.within
    follows = DERIVED.get(series.metric) in {one.metric for one in found.series}
    if follows or not (change.worse and change.standing == "confirmed" and first >= 1):
        return None
    good = series.points[first - 1].commit
    bad = series.points[min(last, len(series.points) - 1)].commit
    # A bisect follows the metric's check, if it has one, also within its limit.
    followed = series.metric if series.metric in CHECKS else ""
    command = commits_command(found.config_file, good, bad, followed)
    return Hint("commit", command) if command and count(good, bad) != 1 else None
