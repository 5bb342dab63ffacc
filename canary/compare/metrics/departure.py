"""The step from which a curve is worse than every run of the baseline. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from canary.compare.metrics.samples import Samples
from canary.compare.metrics.statistic import usable

AT_LEAST = 3
"""Values in a row; fewer are chance."""


def departure(samples: Samples) -> str:
    """Return the end of a sentence that names the step; empty if there is none."""
    now, before = (
        [dict(zip(curve.steps, curve.values, strict=True)) for curve in side]
        for side in samples.curves
    )
    if len(before) < AT_LEAST or samples.gate.worse == "both":
        return ""
    lower = samples.gate.worse == "lower"
    stretch: list[int] = []
    for step in sorted(set(now[0]).intersection(*now[1:])):
        stored = [curve[step] for curve in before if usable(curve.get(step, math.nan))]
        if len(stored) < AT_LEAST:
            continue
        values = [curve[step] for curve in now]
        value = statistics.fmean(values) if all(map(usable, values)) else math.nan
        stretch = [*stretch, step] if _beyond(value, stored, lower=lower) else []
        if len(stretch) == AT_LEAST:
            runs = f"the baseline's {len(before)} runs"
            return f"; at step {stretch[0]} it first leaves the range of {runs}"
    return ""


def _beyond(value: float, stored: Sequence[float], *, lower: bool) -> bool:
    return value < min(stored) if lower else value > max(stored)
