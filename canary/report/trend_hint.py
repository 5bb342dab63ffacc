"""The command that would find the commit of a change in a history."""

from __future__ import annotations

from collections.abc import Callable

from canary.compare.checks import CHECKS
from canary.report.bisect_hint import Hint, commits_command
from canary.report.trend_words import DERIVED
from canary.trends.model import ChangePoint, HistoryTrends, Series

Count = Callable[[str, str], int | None]
"""Returns how many commits lie between two; None if unknown."""


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
