"""The command that would find the commit of a change in a history."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

from canary.compare.bisect_cost import Effect
from canary.compare.checks import CHECKS
from canary.report.bisect_hint import TYPICAL_NOISE, Hint, bisect_minutes, commits_command
from canary.report.trend_words import DERIVED, LEAST_LEVEL
from canary.trends.model import ChangePoint, HistoryTrends, Series

LOWEST = -0.999
"""Relative change; a metric that vanished has no smaller one."""
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
    effect = Effect(max(change.percent / 100, LOWEST), noise_before(series, change.place))
    # A bisect follows the metric's check, if it has one, also within its limit.
    followed = series.metric if series.metric in CHECKS else ""
    command = commits_command(found.config_file, good, bad, followed)
    commits = count(good, bad) if command else None
    if not command or commits == 1:
        return None
    return Hint("commit", command, bisect_minutes(found.launch_seconds, commits, effect))


def noise_before(series: Series, place: int) -> float:
    """Return the scatter of the runs before a place, as far as they are of one level."""
    first = max((change.place for change in series.changes if change.place < place), default=0)
    values = [p.value for p in series.points[first:place] if p.period is not None]
    logs = [math.log(value) for value in values if value is not None and 0 < value < math.inf]
    return statistics.stdev(logs) if len(logs) >= LEAST_LEVEL else TYPICAL_NOISE
