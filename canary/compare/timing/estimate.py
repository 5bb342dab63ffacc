"""How much one number changed between two groups of launches, with an interval.

A launch is one sample: the steps inside it are correlated and say nothing of the noise between
processes. Everything here is in logarithms, so that a change is a ratio: 0.0953 is +10%.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from canary.compare.timing.student import t_quantile, t_upper_tail

HI_LEVEL = 0.95
"""One-sided level of the interval's upper end, which decides `pass`."""
DETECTION_POWER = 0.8
"""The smallest detectable change is found in this share of comparisons."""


@dataclass(frozen=True)
class Spread:
    """Standard deviation of the logarithm of one launch, or of the difference of a pair."""

    sd: float
    df: float
    """Degrees of freedom behind `sd`; infinite for a stated prior."""
    source: str
    """In words: where the spread comes from."""
    prior: bool = False
    """Whether it was stated and not measured."""


@dataclass(frozen=True)
class Estimate:
    """A change in the bad direction, as a log ratio, and how well it is known."""

    change: float
    se: float
    df: float
    spread: Spread
    launches: tuple[int, int]
    """Launches of the current side and of the baseline."""
    paired: bool

    def lower(self, alpha: float) -> float:
        """The change is at least this, up to an error of `alpha`."""
        return self.change - t_quantile(1.0 - alpha, self.df) * self.se

    def upper(self, level: float = HI_LEVEL) -> float:
        """The change is at most this, one-sided at `level`."""
        return self.change + t_quantile(level, self.df) * self.se

    def p_value(self) -> float:
        """Probability of such a change, or a larger one, where there is none."""
        return t_upper_tail(self.change / self.se, self.df)

    def detectable(self, alpha: float) -> float:
        """Smallest change that would be called real in four of five comparisons like this."""
        return self.visible(alpha) + t_quantile(DETECTION_POWER, self.df) * self.se

    def visible(self, alpha: float) -> float:
        """A change from which the interval leaves zero."""
        return t_quantile(1.0 - alpha, self.df) * self.se


def spread_of(logs: Sequence[float], source: str) -> Spread | None:
    """The sample's own spread; None below two values."""
    if len(logs) < 2:
        return None
    return Spread(statistics.stdev(logs), len(logs) - 1, source)


def pooled(first: Sequence[float], second: Sequence[float]) -> Spread | None:
    """The spread inside two groups, each about its own mean; None without two values in one."""
    df = max(len(first) - 1, 0) + max(len(second) - 1, 0)
    if df < 1:
        return None
    squares = 0.0
    for group in filter(len, (first, second)):
        mean = statistics.fmean(group)
        squares += sum((value - mean) ** 2 for value in group)
    return Spread(math.sqrt(squares / df), df, "the runs compared")


def larger(own: Spread | None, model: Spread | None, floor: float) -> Spread | None:
    """The spread to use: the model's, unless the runs themselves scatter more; never below `floor`.

    The larger of the two spreads, with the degrees of freedom of the better known one.
    """
    if model is None or own is None:
        chosen = model or own
    else:
        wider = own if own.sd > model.sd else model
        chosen = replace(wider, df=max(own.df, model.df))
    if chosen is not None and chosen.sd < floor:
        return replace(chosen, sd=floor)
    return chosen


def unpaired_estimate(
    current: Sequence[float], baseline: Sequence[float], spread: Spread
) -> Estimate:
    """Change of the mean of the logs; `spread` is that of one launch."""
    se = spread.sd * math.sqrt(1 / len(current) + 1 / len(baseline))
    change = statistics.fmean(current) - statistics.fmean(baseline)
    return Estimate(change, se, spread.df, spread, (len(current), len(baseline)), paired=False)


def paired_estimate(differences: Sequence[float], spread: Spread) -> Estimate:
    """Mean of the pairs' differences; `spread` is that of one difference."""
    count = len(differences)
    se = spread.sd / math.sqrt(count)
    change = statistics.fmean(differences)
    return Estimate(change, se, spread.df, spread, (count, count), paired=True)


def signed_percent(change: float) -> str:
    """A change in percent with its sign and one decimal; never `-0.0%`."""
    return f"{round(change, 1) + 0.0:+.1f}%"
