"""The scale on which a metric is analysed: logarithms if all values are positive, else its unit.

In logarithms a change is a ratio, so that noise and changes in percent are the same everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from canary.compare.metrics.history import FLOOR
from canary.compare.metrics.judging import SMALLEST
from canary.compare.timing.lane import FLOORS, LARGEST

MOST_PERCENT = 1e6
"""Changes are cut to it, also from 0, where no percentage exists."""


@dataclass(frozen=True)
class Scale:
    """How a metric's unit and the scale of the analysis belong together."""

    logs: bool
    floor: float
    """Smallest credible standard deviation of one run, on the scale."""

    def to(self, value: float) -> float:
        """Return a value of the metric's unit on the scale."""
        return math.log(value) if self.logs else value

    def back(self, place: float) -> float:
        """Return a place on the scale in the metric's unit."""
        return math.exp(min(place, LARGEST)) if self.logs else place

    def percent(self, change: float, before: float) -> float:
        """Return a change on the scale in percent of `before`, also on the scale, at most
        `MOST_PERCENT`."""
        if self.logs:
            found = 100 * math.expm1(min(change, LARGEST))
        elif not change:
            found = 0.0
        else:
            found = 100 * change / abs(before) if before else math.copysign(math.inf, change)
        return max(-MOST_PERCENT, min(MOST_PERCENT, found))


def scale_of(values: Sequence[float], kind: str) -> Scale:
    """Return the scale of finite values; `kind`: a key of `FLOORS`, or empty.

    A trainer's number may repeat to the last bit, so its floor is the grain of a float32 mean.
    """
    if min(values, default=0.0) > 0:
        return Scale(True, FLOORS.get(kind, FLOOR))
    return Scale(False, max(FLOOR * max(map(abs, values), default=0.0), SMALLEST))
