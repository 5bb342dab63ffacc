"""A slow drift, and what tells it from steps.

A drift is a ramp: the series is level, then changes evenly over many runs, then is level again. A
staircase of steps can follow a ramp, and a ramp can follow a step. So both are fitted to the same
stretch, and the better one by BIC is kept. What is explained as a drift is never reported as steps.

The stretches looked at begin and end where levels do. All steps inside go the same way. The size
of a drift is decided like that of a step: by an interval, at its share of the error budget.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from canary.compare.timing.estimate import Spread
from canary.trends.scatter import REACH, Slope, Values, measure, residuals, slope_of
from canary.trends.steps import LEAST_RUNS as STEP_RUNS
from canary.trends.steps import Step, Steps, find_steps

LEAST_RUNS = 12
"""Runs of a drift. What changes within fewer is a step whose place is uncertain."""
KNOTS = 18
"""Places in a stretch where a ramp may begin or end."""
MOST_STEPS = 12
"""With more change points in a series, no drift is looked for."""
EVIDENCE = 6.0
"""How much lower the BIC of a drift must be than that of steps: strong evidence by Kass and Raftery
(1995)."""
BUDGET_SHARE = 0.2
"""Part of a metric's error budget for its drift; the rest is for its steps."""


@dataclass(frozen=True)
class Ramp:
    """An even change from run `first` to run `last`."""

    first: int
    last: int
    slope: Slope
    gain: float
    """How much lower the BIC is than that of steps."""

    @property
    def change(self) -> float:
        """Change over the stretch, on the scale."""
        return self.slope.per_run * (self.last - self.first)

    def interval(self, alpha: float) -> tuple[float, float]:
        """Return both ends of the change, each with error `alpha`."""
        low, high = self.slope.interval(alpha)
        runs = self.last - self.first
        return low * runs, high * runs

    def on(self, count: int) -> Values:
        """Return the ramp at each of `count` runs; 0 before it."""
        places = np.clip(np.arange(count, dtype=float), self.first, self.last)
        ramp: Values = self.slope.per_run * (places - self.first)
        return ramp


@dataclass(frozen=True)
class Course:
    """How a series went: its steps, and a drift if it has one."""

    steps: Steps
    ramp: Ramp | None
    alpha: float
    """Error level of each end of the drift's interval."""


def course_of(
    values: Values,
    floor: float,
    budget: float,
    model: Spread | None = None,
    known: Sequence[int] = (),
) -> Course:
    """Return steps and drift of a series; arguments as in `find_steps`."""
    stepped = (1 - BUDGET_SHARE) * budget
    steps = find_steps(values, floor, stepped, model, known)
    alpha = BUDGET_SHARE * budget / (2 * max(1, len(values)))
    ramp = _best_ramp(values, steps, floor, model, alpha)
    if ramp is None:
        return Course(steps, None, alpha)
    level = values - ramp.on(len(values))
    rest = find_steps(level, floor, stepped, model, known)
    apart = tuple(step for step in rest.found if not _part_of(ramp, step))
    return Course(Steps(apart, rest.scatter), ramp, alpha)


def _part_of(ramp: Ramp, step: Step) -> bool:
    """Return whether a step is a rest of the drift: inside it, and smaller than half of it."""
    first, last = ramp.first - STEP_RUNS, ramp.last + STEP_RUNS
    return first <= step.place <= last and abs(step.change) < abs(ramp.change) / 2


def _best_ramp(
    values: Values, steps: Steps, floor: float, model: Spread | None, alpha: float
) -> Ramp | None:
    if len(steps.found) > MOST_STEPS or not np.ptp(values):
        return None
    found = [
        ramp
        for first, end, cuts in _stretches(len(values), steps)
        if (ramp := _ramp(values, first, end, cuts, floor, model)) is not None
    ]
    sure = [ramp for ramp in found if not ramp.interval(alpha)[0] <= 0 <= ramp.interval(alpha)[1]]
    return max(sure, key=lambda ramp: abs(ramp.change), default=None)


def _stretches(count: int, steps: Steps) -> list[tuple[int, int, list[int]]]:
    """Return (first, one after the last, steps inside) of each stretch; all steps go one way."""
    bounds = [0, *steps.cuts, count]
    signs = [step.sign for step in steps.found]
    return [
        (bounds[i], bounds[j], bounds[i + 1 : j])
        for i, j in combinations(range(len(bounds)), 2)
        if bounds[j] - bounds[i] > LEAST_RUNS and len(set(signs[i : j - 1])) <= 1
    ]


def _ramp(
    values: Values,
    first: int,
    end: int,
    cuts: Sequence[int],
    floor: float,
    model: Spread | None,
) -> Ramp | None:
    """Return the best ramp of a stretch if it explains more than the steps inside."""
    stretch, inside = values[first:end], [cut - first for cut in cuts]
    scatter = measure(stretch, inside, floor, model)
    calm = _without_spikes(stretch, scatter.spread.sd)
    knots = _fit(calm)
    if knots is None:
        return None
    start, last, _ = knots
    line = _line(calm, start, last)
    # The noise about the better of both explanations, or steps through a ramp would widen it.
    flatter = measure(stretch - line, (), floor, model)
    scatter = min(scatter, flatter, key=lambda found: found.spread.sd)
    sd = scatter.spread.sd
    of_steps = _squares(residuals(stretch, inside, sd), sd)
    of_ramp = _squares(residuals(stretch - line, (), sd), sd)
    one = max(sd * sd, min(of_steps, of_ramp) / len(calm))
    lasting = (1 + scatter.correlation) / (1 - scatter.correlation)
    gain = (of_steps - of_ramp) / (one * lasting) + (2 * len(inside) - 3) * math.log(len(calm))
    if gain < EVIDENCE:
        return None
    slope = slope_of(calm[start : last + 1], scatter)
    return Ramp(first + start, first + last, slope, gain)


def _without_spikes(values: Values, sd: float) -> Values:
    """Return the values, spikes cut to the reach of the noise about a running median."""
    side = 3
    padded = np.pad(values, side, mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * side + 1)
    middle = np.median(windows, axis=1)
    calm: Values = np.clip(values, middle - REACH * sd, middle + REACH * sd)
    return calm


def _squares(left: Values, sd: float) -> float:
    """Return the sum of squares; a spike counts as if it lay at the reach of the noise."""
    return float(np.sum(np.clip(left, -REACH * sd, REACH * sd) ** 2))


def _fit(values: Values) -> tuple[int, int, float] | None:
    """Return (first, last, squares left) of the ramp that leaves the least: the best of a coarse
    grid, then the best around it, ever finer."""
    count = len(values)
    knots = np.unique(np.linspace(0, count - 1, KNOTS).round().astype(int)).tolist()
    best = _best_of(values, combinations(knots, 2))
    apart = max(1, count // KNOTS)
    while best is not None and apart > 1:
        apart = (apart + 1) // 2
        steps = (-apart, 0, apart)
        near = [(best[0] + a, best[1] + b) for a in steps for b in steps]
        best = _best_of(values, near)
    return best


def _best_of(values: Values, pairs: Iterable[tuple[int, int]]) -> tuple[int, int, float] | None:
    count = len(values)
    kept = [(a, b) for a, b in pairs if a >= 0 and b < count and b - a >= LEAST_RUNS - 1]
    if not kept:
        return None
    ramps = np.array([np.clip(np.arange(count), a, b) for a, b in kept], dtype=float)
    ramps -= ramps.mean(axis=1, keepdims=True)
    around = values - values.mean()
    explained = (ramps @ around) ** 2 / np.sum(ramps * ramps, axis=1)
    best = int(np.argmax(explained))
    return (*kept[best], float(np.dot(around, around) - explained[best]))


def _line(values: Values, first: int, last: int) -> Values:
    """Return the least-squares ramp with these ends."""
    ramp = np.clip(np.arange(len(values), dtype=float), first, last)
    ramp -= ramp.mean()
    fitted: Values = ramp * (np.dot(ramp, values) / np.dot(ramp, ramp))
    return fitted
