"""Estimate how much one number changed between two groups of launches, and judge it.

A launch is one sample: its steps are correlated and do not show the noise between processes.
Everything here is in logarithms, so that a change is a ratio: 0.0953 is +10%.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from canary.compare.report import CheckStatus
from canary.compare.timing.student import t_quantile, t_upper_tail

Name = TypeVar("Name", bound=str)
HI_LEVEL = 0.95
"""One-sided level of the interval's upper end, which decides `pass`."""
DETECTION_POWER = 0.8
"""Share of comparisons that find the smallest detectable change."""


@dataclass(frozen=True)
class Spread:
    """Standard deviation of the logarithm of one launch, or of the difference of a pair."""

    sd: float
    df: float
    """Degrees of freedom of `sd`; infinite for a prior."""
    source: str
    """Where the spread comes from, in words."""
    prior: bool = False
    """Whether it is assumed, not measured."""


@dataclass(frozen=True)
class Estimate:
    """A change in the bad direction, as a log ratio, with its uncertainty."""

    change: float
    se: float
    df: float
    spread: Spread
    launches: tuple[int, int]
    """Launches of the current side and of the baseline."""
    paired: bool

    def lower(self, alpha: float) -> float:
        """Return the lower end of the interval, one-sided with error `alpha`."""
        return self.change - t_quantile(1.0 - alpha, self.df) * self.se

    def upper(self, level: float = HI_LEVEL) -> float:
        """Return the upper end of the interval, one-sided at `level`."""
        return self.change + t_quantile(level, self.df) * self.se

    def p_value(self) -> float:
        """Return the probability of so large an estimate if nothing changed."""
        return t_upper_tail(self.change / self.se, self.df)

    def detectable(self, alpha: float) -> float:
        """Return the smallest change that four of five such comparisons would find."""
        return self.visible(alpha) + t_quantile(DETECTION_POWER, self.df) * self.se

    def visible(self, alpha: float) -> float:
        """Return the smallest estimate whose interval excludes zero."""
        return t_quantile(1.0 - alpha, self.df) * self.se


def holm(
    p_values: Mapping[Name, float], weights: Mapping[Name, float], budget: float
) -> dict[Name, float]:
    """Return the error level of each test by Holm's weighted procedure (Scandinavian Journal of
    Statistics 6, 1979): by p-value over weight, smallest first, each at the budget times its share
    of the remaining weights. A rejected test leaves its weight to the others."""
    levels: dict[Name, float] = {}
    remaining = sum(weights.values())
    for name in sorted(p_values, key=lambda name: p_values[name] / weights[name]):
        levels[name] = budget * weights[name] / remaining
        if p_values[name] < levels[name]:
            remaining -= weights[name]
    return levels


def spread_of(logs: Sequence[float], source: str) -> Spread | None:
    """Return the standard deviation of `logs`; None with fewer than two values."""
    if len(logs) < 2:
        return None
    return Spread(statistics.stdev(logs), len(logs) - 1, source)


def pooled(first: Sequence[float], second: Sequence[float]) -> Spread | None:
    """Return the pooled spread of two groups about their means; None without two values in one."""
    df = max(len(first) - 1, 0) + max(len(second) - 1, 0)
    if df < 1:
        return None
    squares = 0.0
    for group in filter(len, (first, second)):
        mean = statistics.fmean(group)
        squares += sum((value - mean) ** 2 for value in group)
    return Spread(math.sqrt(squares / df), df, "measured in these runs")


def larger(sample: Spread | None, model: Spread | None, floor: float) -> Spread | None:
    """Return the larger spread, at least `floor`, with the larger degrees of freedom of the two.

    The noise model decides unless the runs compared vary more.
    """
    if model is None or sample is None:
        chosen = model or sample
    else:
        wider = sample if sample.sd > model.sd else model
        chosen = replace(wider, df=max(sample.df, model.df))
    if chosen is not None and chosen.sd < floor:
        return replace(chosen, sd=floor)
    return chosen


def unpaired_estimate(
    current: Sequence[float], baseline: Sequence[float], spread: Spread
) -> Estimate:
    """Estimate the change of the mean of the logs; `spread` is that of one launch."""
    se = spread.sd * math.sqrt(1 / len(current) + 1 / len(baseline))
    change = statistics.fmean(current) - statistics.fmean(baseline)
    return Estimate(change, se, spread.df, spread, (len(current), len(baseline)), paired=False)


def paired_estimate(differences: Sequence[float], spread: Spread) -> Estimate:
    """Estimate the mean difference of pairs; `spread` is that of one difference."""
    count = len(differences)
    se = spread.sd / math.sqrt(count)
    change = statistics.fmean(differences)
    return Estimate(change, se, spread.df, spread, (count, count), paired=True)


def judged(
    found: Estimate, alpha: float, allowed: float, fails_from: float | None = None
) -> CheckStatus:
    """Judge a change: real if its interval at error `alpha` excludes 0. It fails from `fails_from`
    on, by default `allowed`, and passes if the interval's upper end is below `allowed`."""
    if found.lower(alpha) > 0:
        least = allowed if fails_from is None else fails_from
        return "fail" if found.change >= least else "warn"
    return "pass" if found.upper() < allowed else "inconclusive"


def sentence(
    words: str,
    status: CheckStatus,
    found: Estimate,
    alpha: float,
    allowed: float,
    percent: Callable[[float], float],
) -> str:
    """Return the sentence of a judgement.

    `words`: what changed, and by how much. `percent`: a change in percent, with its sign: positive
    is up, not worse."""
    limit, at_most = percent(allowed), signed_percent(percent(found.upper()))
    if status == "fail":
        return f"{words}, limit {abs(limit):.3g}%, more than noise explains"
    if status == "warn":
        return f"{words}, more than noise explains, within the limit of {abs(limit):.3g}%"
    if status == "pass":
        return f"{words}, at most {at_most}, limit {abs(limit):.3g}%"
    possible = f" (could be up to {at_most})" if abs(percent(found.upper())) <= 100 else ""
    decides = _what_decides(found, alpha, allowed)
    return f"{words}, but too noisy to rule out {limit:+.3g}%{possible}. {decides}"


def _what_decides(found: Estimate, alpha: float, allowed: float) -> str:
    """Say how many runs would decide, or how to measure the noise if it is only assumed."""
    if found.spread.prior:
        return "Run each side three times, or measure the noise with canary calibrate"
    # In launches: a run has at least one, so as many runs are enough.
    needed = runs_needed(found, alpha, allowed)
    fewer = [needed is None or count < needed for count in found.launches]
    side = "of the current side" if fewer[0] else "of the baseline"
    what = "pairs" if found.paired else f"runs {'per side' if all(fewer) else side}"
    return f"About {needed} {what} would decide" if needed else f"1,000 {what} would not decide"


def runs_needed(found: Estimate, alpha: float, allowed: float) -> int | None:
    """Return the launches per side that would decide if the estimate is right; None above 1,000."""
    each = found.spread.sd * (1.0 if found.paired else math.sqrt(2.0))
    for count in range(min(found.launches) + 1, 1001):
        scale = each / math.sqrt(count) / found.se
        passes = found.change + (found.upper() - found.change) * scale < allowed
        fails = found.change - (found.change - found.lower(alpha)) * scale > 0
        if passes or (fails and found.change >= allowed):
            return count
    return None


def signed_percent(change: float) -> str:
    """Format a change in percent with its sign and one decimal; never `-0.0%`."""
    return f"{round(change, 1) + 0.0:+.1f}%"
