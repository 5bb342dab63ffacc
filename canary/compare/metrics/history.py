"""What stored runs say about the next one: where it should be, and how far runs scatter. Pure.

One number per run is the sample. Two things would mislead the spread about the mean, so both are
looked for: one run far from all others, and a trend over the runs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from canary.compare.timing.student import t_quantile, t_upper_tail

MIN_RUNS = 3
"""Runs with which a spread is known at all."""
OUTLIER_FROM = 6
OUTLIER_LEVEL = 0.001
"""Grubbs' test (Technometrics 11, 1969) at this level leaves one run out."""
TREND_FROM = 8
TREND_LEVEL = 0.001
"""A slope over the runs counts as a trend if it is this unlikely without one."""
FLOOR = 1e-9
"""Smallest credible spread, as a share of the largest value: the grain of a float32 mean."""


@dataclass(frozen=True)
class Expected:
    """The expectation for a new run."""

    centre: float
    sd: float
    """Standard deviation of one run about the expectation."""
    df: float
    of_centre: float
    """Variance of `centre`, in units of `sd` squared."""
    runs: int
    left_out: float | None = None
    """The value of a run that was left out as an outlier."""
    drift: float = 0.0
    """Change of the expectation per run; 0 without a trend."""

    farthest: tuple[float, float] = (0.0, 0.0)
    """How far a stored run was below and above `centre`; 0 with a trend."""

    def reach(self, sign: float) -> float:
        """Return how far the farthest stored run was off in a direction (1: up, -1: down). Nothing
        nearer is beyond what is known, if the runs have heavier tails than a normal's."""
        return self.farthest[sign > 0]

    def error(self, runs: int) -> float:
        """Return the standard error of the difference to the mean of so many new runs."""
        return self.sd * math.sqrt(1 / runs + self.of_centre)


def expected(values: Sequence[float]) -> Expected:
    """Return what at least two runs, the oldest first, say about the next one.

    Without a trend it is their mean. With one it is the line's value at the newest run: the trend
    is not continued, so that a slow decline does not excuse the next step of it.
    """
    kept, left_out = without_outlier(values)
    mean, count = statistics.fmean(kept), len(kept)
    floor = FLOOR * max(abs(value) for value in kept)
    slope, residual_sd = _trend(kept)
    if slope:
        places = range(count)
        spread = sum((place - statistics.fmean(places)) ** 2 for place in places)
        half = (count - 1) / 2
        return Expected(
            centre=mean + slope * half,
            sd=max(residual_sd, floor),
            df=count - 2,
            of_centre=1 / count + (half + 1) ** 2 / spread,
            runs=count,
            left_out=left_out,
            drift=slope,
        )
    sd = max(statistics.stdev(kept), floor)
    farthest = (mean - min(kept), max(kept) - mean)
    return Expected(mean, sd, count - 1, 1 / count, count, left_out, farthest=farthest)


def without_outlier(values: Sequence[float]) -> tuple[list[float], float | None]:
    """Return the values without the one that no normal sample of this size would have, if any.

    A steady trend has no such value."""
    kept = list(values)
    if len(kept) < OUTLIER_FROM:
        return kept, None
    mean, sd = statistics.fmean(kept), statistics.stdev(kept)
    if not sd:
        return kept, None
    far = max(range(len(kept)), key=lambda place: abs(kept[place] - mean))
    if abs(kept[far] - mean) / sd <= _grubbs(len(kept)):
        return kept, None
    return kept[:far] + kept[far + 1 :], kept[far]


def _grubbs(count: int) -> float:
    """Return the critical value of Grubbs' test, two-sided."""
    t = t_quantile(1 - OUTLIER_LEVEL / (2 * count), count - 2)
    return (count - 1) / math.sqrt(count) * math.sqrt(t * t / (count - 2 + t * t))


def _trend(values: Sequence[float]) -> tuple[float, float]:
    """Return (slope per run, standard deviation about the line); slope 0 without a clear trend."""
    count = len(values)
    if count < TREND_FROM or len(set(values)) < 2:
        return 0.0, 0.0
    slope, start = statistics.linear_regression(range(count), values)
    squares = sum((value - start - slope * place) ** 2 for place, value in enumerate(values))
    sd = math.sqrt(squares / (count - 2))
    error = sd / math.sqrt((count**3 - count) / 12)
    if error and 2 * t_upper_tail(abs(slope) / error, count - 2) > TREND_LEVEL:
        return 0.0, 0.0
    return slope, sd
