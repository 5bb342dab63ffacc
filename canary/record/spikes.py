"""Single values far from all others, and a launch's one stalled step. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from canary.record.step_row import Row
from canary.record.types import Stall

SPIKE = 6.0
"""A spike is so many robust standard deviations away from the median."""
MAD_OF_NORMAL = 0.6745
"""Median absolute deviation of a normal distribution, in standard deviations."""
MIN_POINTS = 5
"""Fewer values show no spread."""


def is_far(distance: float, distances: Sequence[float]) -> bool:
    """Return whether one of the distances from the median is that of a spike."""
    return distance > SPIKE * statistics.median(distances) / MAD_OF_NORMAL


def stall_of(rows: Sequence[Row]) -> Stall | None:
    """Return the longest step of a launch if it is a spike; None otherwise. `rows`: the timed
    ones."""
    finite = [row for row in rows if math.isfinite(row["wall_s"])]
    if len(finite) < MIN_POINTS:
        return None
    *others, longest = sorted(finite, key=lambda row: row["wall_s"])
    middle = statistics.median(row["wall_s"] for row in finite)
    if not is_far(longest["wall_s"] - middle, [abs(row["wall_s"] - middle) for row in finite]):
        return None
    return Stall(
        step=longest["step"],
        seconds=longest["wall_s"],
        next_s=others[-1]["wall_s"],
        others_mean_s=statistics.fmean(row["wall_s"] for row in others),
    )
