"""A robust slope over runs, with an interval that accounts for runs that are alike."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from canary.compare.timing.student import t_quantile
from canary.trends.scatter import Scatter, Values

MOST_FITTED = 400
"""Points of the median of all pairwise slopes; longer stretches are thinned evenly."""


@dataclass(frozen=True)
class Slope:
    """Change per run on the series' scale."""

    per_run: float
    error: float
    """Standard error."""
    df: float

    def interval(self, alpha: float) -> tuple[float, float]:
        """Return both ends, each with error `alpha`."""
        reach = t_quantile(1 - alpha, self.df) * self.error
        return self.per_run - reach, self.per_run + reach


def slope_of(values: Values, scatter: Scatter) -> Slope:
    """Return the slope of at least two values by Theil (1950) and Sen (1968).

    Its standard error is that of the least-squares slope of an AR(1) process. It never claims more
    than the means of `WINDOW` runs at both ends would.
    """
    count = len(values)
    places = np.arange(count, dtype=float)
    kept = np.unique(np.linspace(0, count - 1, min(count, MOST_FITTED)).round().astype(int))
    first, second = np.triu_indices(len(kept), k=1)
    rises = values[kept[second]] - values[kept[first]]
    per_run = float(np.median(rises / (kept[second] - kept[first])))
    middle = places - places.mean()
    weights = middle / float(np.dot(middle, middle))
    exact = scatter.spread.sd * math.sqrt(quadratic(weights, scatter.correlation))
    exact *= scatter.factor(count // 2)
    half = max(1, count // 3)
    ends = scatter.error(half, half) / max(1, count - half)
    return Slope(per_run, max(exact, ends), scatter.spread.df)


def quadratic(weights: Values, correlation: float) -> float:
    """Return the variance of a weighted sum of an AR(1) process of unit variance."""
    carried = total = 0.0
    for weight in weights.tolist():
        total += weight * weight + 2 * weight * carried
        carried = correlation * (carried + weight)
    return max(total, 0.0)
