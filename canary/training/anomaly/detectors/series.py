"""Statistics of short series that are noisy and correlated from one step to the next. Pure."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

MOST_CORRELATED = 0.95
"""Series more correlated than this cannot be told from a drift within a window."""
INDEPENDENT = 10.0
"""A past worth fewer independent values than this does not tell how a series varies."""


@dataclass(frozen=True)
class Shift:
    """How far the mean of recent values lies from that of the ones before."""

    before: float
    after: float
    z: float
    """In standard errors that allow for correlation; signed like `after - before`."""
    independent: float
    """How many independent values the ones before are worth."""

    def sure(self, errors: float) -> bool:
        """Whether it is one, in either direction: by so many standard errors, of a series whose
        past tells how it varies."""
        return abs(self.z) > errors and self.independent >= INDEPENDENT

    @property
    def difference(self) -> float:
        """after - before."""
        return self.after - self.before


def long_run(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, variance, and variance of a mean times its count, of a series with lag-1 correlation.

    The correlation is corrected for its bias in short series, (1 + 3 phi) / n (Kendall 1954), and
    the variance for what the mean of so few independent values takes away from it.
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
    """The shift between two stretches of one series; the first tells how it varies."""
    mean, variance, spread = long_run(before)
    now = statistics.fmean(after)
    error = math.sqrt(min(spread / len(before), variance) + min(spread / len(after), variance))
    difference = now - mean
    if error <= 0.0:
        z = 0.0 if difference == 0.0 else math.copysign(math.inf, difference)
        return Shift(mean, now, z, len(before))
    return Shift(mean, now, difference / error, len(before) * variance / spread)


def split(values: deque[float], recent: int) -> tuple[list[float], list[float]]:
    """A window as its past and its `recent` last values."""
    everything = list(values)
    return everything[:-recent], everything[-recent:]


def spread_of(values: Sequence[float]) -> float:
    """Standard deviation from the median absolute deviation (Gaussian consistent)."""
    centre = statistics.median(values)
    return 1.4826 * statistics.median(abs(value - centre) for value in values)
