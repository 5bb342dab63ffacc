"""Long series for a picture: every bucket of steps keeps its smallest and largest value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

MOST = 120
"""Points of one series in a chart."""


def kept_steps(series: Sequence[Mapping[int, float]], most: int = MOST) -> list[int]:
    """Return the steps to draw, in order.

    Each bucket keeps the step of each series' smallest and of its largest finite value. First and
    last step stay. Steps whose value is not finite stay too, as many as fit."""
    steps = sorted({step for one in series for step in one})
    if len(steps) <= most:
        return steps
    kept = {steps[0], steps[-1]}
    buckets = most // 2 - 1
    for number in range(buckets):
        bucket = steps[number * len(steps) // buckets : (number + 1) * len(steps) // buckets]
        for one in series:
            values = [
                (one[step], step) for step in bucket if math.isfinite(one.get(step, math.nan))
            ]
            if values:
                kept |= {min(values)[1], max(values)[1]}
    odd = [step for step in steps if any(not math.isfinite(one.get(step, 0.0)) for one in series)]
    return sorted(kept.union(odd[:most]))
