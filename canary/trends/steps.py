"""Change points of a series: candidates by `ruptures`, decided by our own interval and a count of
runs.

The search takes the best places among all, so chance alone finds some. Each place that could have
been one gets its share of the error level (Bonferroni), on both sides. What is found must pass:

1. The interval of the difference between its two levels, at that error level, excludes 0.
2. The runs of the shorter level lie beyond the middle of both more often than spikes explain. How
   often a run lies there by chance is counted in all other levels.

The least certain candidate goes first. Its levels become one, and the noise is measured again.

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
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from canary.baseline.history import WINDOW
from canary.compare.timing.estimate import Estimate, Spread
from canary.compare.timing.lane import FAMILY_BUDGET

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


LEAST_RUNS = 3
"""Runs on each side of a change point."""
BANDWIDTH = 0.1
"""Of the kernel exp(-b d^2), d in standard deviations: a distance beyond 5 counts as one of 5, so
that a spike costs little."""
PENALTY = 1.8
"""Per change point. The kernel's gain of a small step of z standard errors is 0.12 z^2, so 1.8 is
about z = 3.9: below what any interval here decides."""
SPIKE_BUDGET = FAMILY_BUDGET / 10
"""Probability that spikes side by side look like a level anywhere in a series. They hit all metrics
of a run alike, so it is not shared by them."""
MOST_COUNTED = 60
"""Runs of a level that are counted for that."""
PLACES_95 = -math.log1p(-math.sqrt(0.95))
"""A place belongs to the 95% set if its log-likelihood is less than this below the best: each side
of the best place is a random walk whose maximum is exponential (Siegmund, 1988)."""


@dataclass(frozen=True)
class Step:
    """A change point on the series' scale."""

    place: int
    estimate: Estimate
    """Of the size of the change; `sign` is its direction."""
    sign: int
    before: float
    """Middle of the level before it."""
    alpha: float
    within: tuple[int, int]

    @property
    def change(self) -> float:
        """The change with its sign."""
        return self.sign * self.estimate.change

    @property
    def interval(self) -> tuple[float, float]:
        """The interval of `change`, each end at `alpha`."""
        ends = self.estimate.lower(self.alpha), self.estimate.upper(1 - self.alpha)
        return ends if self.sign > 0 else (-ends[1], -ends[0])


@dataclass(frozen=True)
class Steps:
    """All change points of a series, and the noise about its levels."""

    found: tuple[Step, ...]
    scatter: Scatter

    @property
    def cuts(self) -> list[int]:
        """First place of each level but the first."""
        return [step.place for step in self.found]


def find_steps(values: Values, floor: float, budget: float, model: Spread | None = None) -> Steps:
    """Return the change points of a series.

    Args:
        values: on the series' scale, oldest first.
        floor: smallest credible standard deviation of a run.
        budget: probability that any change point is found if there is none.
        model: the measured noise.
    """
    if len(values) < 2 * LEAST_RUNS or not np.ptp(values):
        return Steps((), measure(values, (), floor, model))
    # From neighbours alone: no level shift widens it.
    sd = max(robust_sd(np.diff(values)) / math.sqrt(2), floor)
    cuts = _candidates(values, sd)
    alpha = budget / (2 * (len(values) - 2 * LEAST_RUNS + 1))
    while True:
        scatter = measure(values, cuts, floor, model)
        found = [_step(values, cuts, number, scatter, alpha) for number in range(len(cuts))]
        if not found:
            return Steps((), scatter)
        weakest = min(found, key=lambda step: step.estimate.change / step.estimate.se)
        if weakest.estimate.lower(alpha) > 0:
            spikes = [s for n, s in enumerate(found) if _of_spikes(values, cuts, n, s, scatter)]
            if not spikes:
                return Steps(tuple(_placed(values, found, scatter)), scatter)
            weakest = min(spikes, key=lambda step: step.estimate.change / step.estimate.se)
        cuts.remove(weakest.place)


def _candidates(values: Values, sd: float) -> list[int]:
    """Return the first places of new levels that explain the series best (Killick, Fearnhead and
    Eckley 2012; Arlot, Celisse and Harchaoui 2019). `sd`: of one run; not 0."""
    from ruptures import KernelCPD

    standard = np.clip((values - np.median(values)) / sd, -1e6, 1e6)
    search = KernelCPD(kernel="rbf", min_size=LEAST_RUNS, params={"gamma": BANDWIDTH})
    return [int(place) for place in search.fit(standard).predict(pen=PENALTY)[:-1]]


def _step(values: Values, cuts: Sequence[int], number: int, scatter: Scatter, alpha: float) -> Step:
    before, after = levels_of(len(values), cuts)[number : number + 2]
    old, new = (center(values[first:end], scatter.spread.sd) for first, end in (before, after))
    runs = (after[1] - after[0], before[1] - before[0])
    error, spread, place = scatter.error(runs[1], runs[0]), scatter.spread, after[0]
    estimate = Estimate(abs(new - old), error, spread.df, spread, runs, paired=False)
    return Step(place, estimate, 1 if new >= old else -1, old, alpha, (place, place))


def _of_spikes(
    values: Values, cuts: Sequence[int], number: int, step: Step, scatter: Scatter
) -> bool:
    """Return whether spikes side by side could have made the shorter level."""
    before, after = levels_of(len(values), cuts)[number : number + 2]
    new_is_short = after[1] - after[0] <= before[1] - before[0]
    short, sign = (after, step.sign) if new_is_short else (before, -step.sign)
    sd, half = scatter.spread.sd, step.estimate.change / 2
    away = sign * residuals(values, cuts, sd)
    if not np.any(away):
        return False  # Every run repeats its level exactly.
    others = np.concatenate([away[: short[0]], away[short[1] :]])
    chance = (float(np.sum(others > half)) + 0.5) / (len(others) + 1)  # never 0
    inside = values[short[0] : short[1]]
    inside = inside[:MOST_COUNTED] if new_is_short else inside[-MOST_COUNTED:]
    beyond = int(np.sum(sign * (inside - step.before - step.change / 2) > 0))
    return len(values) * _at_least(beyond, len(inside), chance) > SPIKE_BUDGET


def _at_least(hits: int, trials: int, chance: float) -> float:
    """Return the probability of so many hits or more (binomial)."""
    return math.fsum(
        math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k)
        for k in range(hits, trials + 1)
    )


def _placed(values: Values, found: Sequence[Step], scatter: Scatter) -> list[Step]:
    """Give each change point its most likely place between its neighbours, and the 95% set."""
    bounds = [0, *(step.place for step in found), len(values)]
    lasting = (1 + scatter.correlation) / (1 - scatter.correlation)
    allowed = 2 * PLACES_95 * lasting * scatter.spread.sd**2
    placed = []
    for number, step in enumerate(found, start=1):
        first, end = bounds[number - 1], bounds[number + 1]
        costs = _costs(values[first:end], step, REACH * scatter.spread.sd)
        # A level keeps its least length, so the best place is among the inner ones.
        inner = costs[LEAST_RUNS : len(costs) - LEAST_RUNS]
        best = LEAST_RUNS + int(np.argmin(inner))
        near = np.flatnonzero(costs[1:-1] - costs[best] <= allowed) + 1
        within = (first + int(min(near.min(), best)), first + int(max(near.max(), best)))
        placed.append(replace(step, place=first + best, within=within))
        bounds[number] = first + best
    return placed


def _costs(values: Values, step: Step, reach: float) -> Values:
    """Return the squared distances to the levels, cut at `reach`, for each place of the change."""
    far = reach + abs(step.change)
    old, new = (
        np.minimum(np.abs(values - middle), far) ** 2
        for middle in (step.before, step.before + step.change)
    )
    started = np.concatenate([[0.0], np.cumsum(old)])
    rest = np.concatenate([[0.0], np.cumsum(new)])
    costs: Values = started + (rest[-1] - rest)
    return costs
