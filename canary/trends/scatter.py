"""How the runs of a series scatter about its levels: one run's spread, and how far it lasts.

Runs that follow each other are alike: a busy machine stays busy for some runs. The mean of such
runs is less certain than that of independent ones, and two things account for it:

- The autocorrelation of the residuals within levels, as of an AR(1) process. It is corrected for
  the bias of short levels (Marriott and Pope, Biometrika 41, 1954). Its own standard error is
  added, and it is never below 0.
- A mean over more than `WINDOW` runs counts as one over `WINDOW`: machines wander slowly.

Residuals beyond `REACH` standard deviations count as if they lay there, so that spikes neither
hide a change nor make one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from canary.baseline.history import WINDOW
from canary.compare.timing.estimate import Spread

Values = npt.NDArray[np.float64]

REACH = 2.5
REACH_OF_CENTER = 2.0
MAD = 0.6745
"""Median of the absolute value of a standard normal."""
KEPT = 0.9545
"""Mean square of a standard normal that is cut at `REACH`."""
MOST_CORRELATION = 0.95
IN_THESE_RUNS = "measured in these runs"


@dataclass(frozen=True)
class Scatter:
    """The noise of one series on its scale."""

    spread: Spread
    """Of one run. Its degrees of freedom count the runs that are as good as independent."""
    correlation: float
    """Of two runs that follow each other, 0 to 0.95."""

    def variance(self, runs: int) -> float:
        """Return the variance of a mean of runs, in units of one run's."""
        return of_mean(min(runs, WINDOW), self.correlation)

    def error(self, before: int, after: int) -> float:
        """Return the standard error of the difference between two neighbouring levels."""
        return self.spread.sd * math.sqrt(self.variance(before) + self.variance(after))


def of_mean(runs: int, correlation: float) -> float:
    """Return the variance of the mean of an AR(1) process over so many runs, per unit variance."""
    if correlation <= 0:
        return 1 / runs
    rest = 1 - correlation
    shared = correlation / rest - correlation * (1 - correlation**runs) / (runs * rest * rest)
    return (1 + 2 * shared) / runs


def robust_sd(residuals: Values) -> float:
    """Return the standard deviation about 0 without the weight of spikes; 0 if over half are 0."""
    sizes = np.abs(residuals)
    middle = float(np.median(sizes)) / MAD if len(sizes) else 0.0
    cut = np.minimum(sizes, REACH * middle)
    return math.sqrt(float(np.mean(cut * cut)) / KEPT) if middle else 0.0


def center(values: Values, sd: float) -> float:
    """Return Huber's one-step estimate of the middle, which no spike moves far."""
    middle = float(np.median(values))
    reach = REACH_OF_CENTER * sd
    return middle + float(np.mean(np.clip(values - middle, -reach, reach)))


def levels_of(count: int, cuts: Sequence[int]) -> list[tuple[int, int]]:
    """Return (first, one after the last) of each level."""
    return list(pairwise((0, *cuts, count)))


def residuals(values: Values, cuts: Sequence[int], sd: float) -> Values:
    """Return the distances to the middle of each value's level."""
    found = np.empty(len(values))
    for first, end in levels_of(len(values), cuts):
        found[first:end] = values[first:end] - center(values[first:end], sd)
    return found


def sd_of_steps(values: Values, floor: float) -> float:
    """Return one run's standard deviation from neighbours alone, which no level shift widens."""
    return max(robust_sd(np.diff(values)) / math.sqrt(2), floor)


def measure(
    values: Values, cuts: Sequence[int], floor: float, model: Spread | None = None
) -> Scatter:
    """Return the noise about the levels. A noise model can only widen it."""
    count, freedom = len(values), max(1, len(values) - len(cuts) - 1)
    about_medians = residuals(values, cuts, 0.0)
    rough = max(robust_sd(about_medians), floor)
    left = residuals(values, cuts, rough)
    sd = robust_sd(left) * math.sqrt(count / freedom)
    correlation = _correlation(left, max(sd, floor), count / (len(cuts) + 1)) if sd else 0.0
    independent = max(1.0, 0.9 * freedom * (1 - correlation) / (1 + correlation))
    source = IN_THESE_RUNS
    if model is not None and model.sd > sd:
        sd, source = model.sd, model.source
    return Scatter(Spread(max(sd, floor), independent, source), correlation)


def _correlation(left: Values, sd: float, per_level: float) -> float:
    cut = np.clip(left, -REACH * sd, REACH * sd)
    squares = float(np.dot(cut, cut))
    if not squares:
        return 0.0
    found = float(np.dot(cut[1:], cut[:-1])) / squares
    found += (1 + 3 * found) / per_level
    error = math.sqrt(max(0.05, 1 - found * found) / len(left))
    return min(max(found + error, 0.0), MOST_CORRELATION)
