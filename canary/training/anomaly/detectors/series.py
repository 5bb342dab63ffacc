"""Statistics of short, noisy series that are correlated from step to step. Pure."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

MOST_CORRELATED = 0.95
"""Within a window, a series more correlated than this looks like a drift."""
INDEPENDENT = 10.0
"""Fewer independent values than this do not show how a series varies."""


@dataclass(frozen=True)
class Shift:
    """The difference between the mean of recent values and that of earlier ones."""

    before: float
    after: float
    z: float
    """In standard errors, corrected for correlation; signed like `after - before`."""
    independent: float
    """The number of independent values that the earlier values are worth."""

    def sure(self, errors: float) -> bool:
        """Return whether the shift exceeds `errors` standard errors, from enough earlier values."""
        return abs(self.z) > errors and self.independent >= INDEPENDENT

    @property
    def difference(self) -> float:
        """Return `after - before`."""
        return self.after - self.before


def long_run(values: Sequence[float]) -> tuple[float, float, float]:
    """Return mean, variance, and count times the variance of the mean, with lag-1 correlation.

    The correlation is corrected for its bias in short series, (1 + 3 phi) / n (Kendall 1954). The
    variance is corrected for the few independent values in the mean.
    """
    count = len(values)
    mean = statistics.fmean(values)
    centred = [value - mean for value in values]
    squares = math.fsum(c * c for c in centred)
    variance = squares / (count - 1)
    if variance <= 0.0 or count < 4:
        return mean, variance, variance
    lagged = math.fsum(a * b for a, b in zip(centred, islice(centred, 1, None), strict=False))
    phi = lagged / squares
    phi = min(MOST_CORRELATED, max(0.0, phi + (1 + 3 * phi) / count))
    spread = (1 + phi) / (1 - phi)
    variance /= max(0.2, 1 - spread / count)
    return mean, variance, variance * spread


def shift_of(before: Sequence[float], after: Sequence[float]) -> Shift:
    """Return the shift between two parts of one series; `before` gives the variation."""
    mean, variance, spread = long_run(before)
    now = statistics.fmean(after)
    error = math.sqrt(min(spread / len(before), variance) + min(spread / len(after), variance))
    difference = now - mean
    if error <= 0.0:
        z = 0.0 if difference == 0.0 else math.copysign(math.inf, difference)
        return Shift(mean, now, z, len(before))
    return Shift(mean, now, difference / error, len(before) * variance / spread)


def split(values: deque[float], recent: int) -> tuple[list[float], list[float]]:
    """Return a window in two parts: its earlier values, and its last `recent` values."""
    window = list(values)
    return window[:-recent], window[-recent:]


def spread_of(values: Sequence[float]) -> float:
    """Return the standard deviation, estimated from the median absolute deviation (Gaussian)."""
    centre = statistics.median(values)
    return 1.4826 * statistics.median(abs(value - centre) for value in values)


def trend_of(values: Sequence[float]) -> tuple[float, float]:
    """Return how far a straight line moves from the first value to the last.

    Also returns its standard error, corrected for correlation of the residuals."""
    count = len(values)
    places = [place - (count - 1) / 2 for place in range(count)]
    squares = count * (count * count - 1) / 12
    level = statistics.fmean(values)
    slope = math.fsum(x * y for x, y in zip(places, values, strict=True)) / squares
    residuals = [y - level - slope * x for x, y in zip(places, values, strict=True)]
    spread = max(0.0, long_run(residuals)[2])
    return slope * (count - 1), (count - 1) * math.sqrt(spread / squares)
