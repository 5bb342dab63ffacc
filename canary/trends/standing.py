"""What pairs of both sides say about a waiting change, as `canary ab` compares them."""

from __future__ import annotations

import math
from dataclasses import replace

from canary.compare.report import Comparison
from canary.trends.model import ChangePoint, HistoryTrends, Series


def confirmed_by(series: Series, change: ChangePoint, paired: Comparison) -> ChangePoint:
    """Return the change with what pairs of its two sides say, as `canary ab` compares them.

    A waiting change is confirmed if the check of its metric in the pairs is sure of the same sign.
    Otherwise it stays as it is.

    Args:
        series: the change's series.
        change: one of its changes.
        paired: the comparison of the commit after the change (current) with the one before it.
    """
    check = next((one for one in paired.checks if one.name == series.metric), None)
    if check is None or check.delta_pct is None or check.interval is None:
        return change
    same = math.copysign(1, check.delta_pct) == math.copysign(1, change.percent)
    if not same or check.in_noise:
        return change
    pairs = min(len(paired.baseline.run_ids), len(paired.current.run_ids))
    standing = "confirmed" if change.standing == "waiting" else change.standing
    return replace(change, pairs=pairs, standing=standing)


def with_pairs(found: HistoryTrends, paired: Comparison) -> HistoryTrends:
    """Return a history whose waiting changes are confirmed where pairs of both sides show them.

    Args:
        found: the trends of one canary on one machine.
        paired: what `canary ab` left for two of its commits. If no waiting change lies between
            them, a note says so.
    """
    base, head = paired.baseline.sha, paired.current.sha
    matched = False

    def confirmed(series: Series, change: ChangePoint) -> ChangePoint:
        nonlocal matched
        before = {point.commit for point in series.points[: change.place]}
        after = {point.commit for point in series.points[change.place :]}
        if change.standing != "waiting" or base not in before or head not in after:
            return change
        matched = True
        return confirmed_by(series, change, paired)

    series = tuple(
        replace(one, changes=tuple(confirmed(one, change) for change in one.changes))
        for one in found.series
    )
    if matched:
        return replace(found, series=series)
    between = " and ".join((sha or "an unknown commit")[:9] for sha in (base, head))
    return replace(found, notes=(*found.notes, f"no change waits between {between} of the pairs"))
