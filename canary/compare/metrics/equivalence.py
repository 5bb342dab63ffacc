"""Are two groups of runs equal within a margin? Two one-sided tests on their means. Pure.

Schuirmann (J. Pharmacokinet. Biopharm. 15, 1987) with Welch's variances. The margin is a share of
the baseline's mean, which is itself an estimate: each test scales the whole baseline, as Sasabuchi
and Hauschke do, so that the margin's uncertainty counts too. A run is one sample, never a step.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from canary.compare.timing.student import t_quantile, t_upper_tail

MIN_RUNS = 2
"""Runs per side: one alone shows no spread."""
DETECTION_POWER = 0.8


@dataclass(frozen=True)
class Difference:
    """The mean of `current - factor * baseline`, with Welch's error and degrees of freedom."""

    mean: float
    error: float
    df: float

    def above_zero(self) -> float:
        """Return the p-value of the claim that it is above 0."""
        return t_upper_tail(self.mean / self.error, self.df)


@dataclass(frozen=True)
class Sides:
    """Mean and variance of both sides, and their runs."""

    means: tuple[float, float]
    variances: tuple[float, float]
    runs: tuple[int, int]

    @classmethod
    def of(cls, current: Sequence[float], baseline: Sequence[float]) -> Sides:
        """Summarise two samples of at least two runs each."""
        floor = (1e-9 * max(map(abs, (*current, *baseline)))) ** 2 or 1e-300
        variances = (max(statistics.variance(side), floor) for side in (current, baseline))
        current_variance, baseline_variance = variances
        return cls(
            (statistics.fmean(current), statistics.fmean(baseline)),
            (current_variance, baseline_variance),
            (len(current), len(baseline)),
        )

    def difference(self, factor: float) -> Difference:
        """Return `current - factor * baseline`."""
        parts = (
            self.variances[0] / self.runs[0],
            factor**2 * self.variances[1] / self.runs[1],
        )
        error = math.sqrt(sum(parts)) or 1e-300
        shares = [part / sum(parts) if sum(parts) else 0.5 for part in parts]
        df = 1 / sum(
            share**2 / (runs - 1) for share, runs in zip(shares, self.runs, strict=True) if share
        )
        return Difference(self.means[0] - factor * self.means[1], error, df)

    def p_equivalent(self, margin: float) -> float:
        """Return the larger p-value of the two tests that the change is within the margin."""
        sign = math.copysign(1.0, self.means[1])
        low, high = (self.difference(1 + side * margin) for side in (-sign, sign))
        return max(low.above_zero(), 1 - high.above_zero())

    def p_different(self, sign: float) -> float:
        """Return the p-value of a change in one direction (1: up, -1: down)."""
        found = self.difference(1.0)
        return t_upper_tail(sign * found.mean / found.error, found.df)

    def power(self, margin: float, alpha: float) -> float:
        """Return the probability of showing equivalence if nothing changed (Phillips, 1990)."""
        found = self.difference(1.0)
        room = margin * abs(self.means[1]) / found.error - t_quantile(1 - alpha, found.df)
        return max(0.0, 1 - 2 * t_upper_tail(room, found.df))

    def shown(self, alpha: float) -> float:
        """Return the smallest margin that four of five such comparisons would show."""
        found = self.difference(1.0)
        half = (1 + DETECTION_POWER) / 2
        room = t_quantile(1 - alpha, found.df) + t_quantile(half, found.df)
        return room * found.error / abs(self.means[1])

    def with_runs(self, count: int) -> Sides:
        """Return the same means and variances with at least so many runs per side."""
        current, baseline = self.runs
        return Sides(self.means, self.variances, (max(current, count), max(baseline, count)))
