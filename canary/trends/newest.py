"""The newest runs, if they are away from their level but too few to be one of their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from canary.compare.timing.estimate import Estimate, Spread
from canary.trends.candidates import LEAST_RUNS
from canary.trends.scatter import Values, center, measure
from canary.trends.steps import Step, share_beyond

MOST_WAITING = LEAST_RUNS - 1
COMMON = 0.1
"""What so large a share of the runs of a level do by chance begins nothing."""


def waiting_step(
    values: Values, cuts: Sequence[int], floor: float, budget: float, model: Spread | None
) -> Step | None:
    """Return the change that the newest one or two runs may begin; None if they may be noise.

    Args:
        values: on the series' scale, without drift.
        cuts: first places of the known levels.
        floor: smallest credible standard deviation of a run.
        budget: error budget of the metric's steps.
        model: the measured noise.
    """
    start = cuts[-1] if cuts else 0
    alpha = budget / (2 * MOST_WAITING)
    for runs in range(MOST_WAITING, 0, -1):
        place = len(values) - runs
        if place - start < LEAST_RUNS:
            continue
        scatter = measure(values[:place], cuts, floor, model)
        sd = scatter.spread.sd
        before, now = center(values[start:place], sd), values[place:]
        change = float(np.mean(now)) - before
        sign = 1 if change >= 0 else -1
        error = scatter.error(place - start, runs)
        sizes = (runs, place - start)
        found = Estimate(abs(change), error, scatter.spread.df, scatter.spread, sizes, paired=False)
        half = found.change / 2
        chance = share_beyond(sign * (values[start:place] - before), half)
        away = chance**runs <= COMMON and np.all(sign * (now - before) > half)
        if away and found.lower(alpha) > 0:
            return Step(place, found, sign, before, alpha, (place, place))
    return None
