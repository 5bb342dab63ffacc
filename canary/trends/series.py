"""One metric over the runs of a drawer: its numbers in, levels and change points out; and what
became of each change: confirmed, accepted or returned."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from canary.compare.metrics.judging import FLOOR, SMALLEST
from canary.compare.metrics.statistic import usable
from canary.compare.timing.estimate import Spread
from canary.compare.timing.lane import FLOORS, LARGEST
from canary.compare.timing.student import t_quantile
from canary.errors import counted
from canary.trends.model import ChangePoint, Level, Series, Standing, StoredPoint
from canary.trends.runs import MachineChanges, Number, Run, suspects
from canary.trends.steps import (
    LEAST_RUNS,
    Scatter,
    Step,
    Steps,
    Values,
    center,
    find_steps,
    levels_of,
)

FEWEST = 2 * LEAST_RUNS
"""Values of a series in which a change can be found."""
LEVEL = 0.975
"""One-sided, for both ends of an interval of 95%."""
MOST_PERCENT = 1e6
"""Changes are cut to it, also from 0, where no percentage exists."""
RETURNED_SHARE = 0.25
"""A later level is back if it keeps at most this share of the change, or is within the noise."""
LEVEL_95 = 1.96


@dataclass(frozen=True)
class Scale:
    """The scale on which a metric is analysed: logarithms if all values are positive, so that a
    change is a ratio, else its unit."""

    logs: bool
    floor: float
    """Smallest credible standard deviation of one run, on the scale."""

    def to(self, value: float) -> float:
        """Return a value of the metric's unit on the scale."""
        return math.log(value) if self.logs else value

    def back(self, place: float) -> float:
        """Return a place on the scale in the metric's unit."""
        return math.exp(min(place, LARGEST)) if self.logs else place

    def percent(self, change: float, before: float) -> float:
        """Return a change on the scale in percent of `before`, also on the scale, at most
        `MOST_PERCENT`."""
        if self.logs:
            found = 100 * math.expm1(min(change, LARGEST))
        elif not change:
            found = 0.0
        else:
            found = 100 * change / abs(before) if before else math.copysign(math.inf, change)
        return max(-MOST_PERCENT, min(MOST_PERCENT, found))


def scale_of(values: Sequence[float], kind: str) -> Scale:
    """Return the scale of finite values; `kind`: a key of `FLOORS`, or empty.

    A trainer's number may repeat to the last bit, so its floor is the grain of a float32 mean.
    """
    if min(values, default=0.0) > 0:
        return Scale(True, FLOORS.get(kind, FLOOR))
    return Scale(False, max(FLOOR * max(map(abs, values), default=0.0), SMALLEST))


@dataclass(frozen=True)
class _Analysed:
    """A series on its scale. Places in it count only runs that have a value."""

    scale: Scale
    values: Values
    places: Sequence[int]
    """Of each value among all runs."""
    steps: Steps
    better: bool | None
    """Whether lower values are better; None: neither direction is."""

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """(first, one after the last) of each level."""
        return levels_of(len(self.values), self.steps.cuts)


def series_of(
    metric: str,
    newest: Number,
    runs: Sequence[Run],
    budget: float,
    model: Spread | None,
    machines: MachineChanges,
) -> Series:
    """Return the series of one metric.

    Args:
        metric: its name in `facts`.
        newest: its newest number, which has title and unit.
        runs: oldest first.
        budget: probability of any false alarm in this series.
        model: the measured noise of a run's logarithm.
        machines: what changed on the machine.
    """
    # A run's number counts if it measures what the newest one does: device or resident memory.
    numbers = [
        number if number is not None and number.kind == newest.kind else None
        for number in (run.numbers.get(metric) for run in runs)
    ]
    tokens = {number.per_token for number in numbers if number is not None}
    # Times are per generated token if all runs count them, and they differ.
    per_token = len(tokens) > 1 and None not in tokens
    points = tuple(
        replace(run.point, value=_value(number, per_token))
        for run, number in zip(runs, numbers, strict=True)
    )
    notes = list(_notes(numbers, len(runs)))
    known = [place for place, point in enumerate(points) if point.value is not None]
    values = [point.value for point in points if point.value is not None]
    levels: tuple[Level, ...] = ()
    changes: tuple[ChangePoint, ...] = ()
    if len(values) < FEWEST:
        notes.append(f"not judged: {counted(len(values), 'value')}, and {FEWEST} are needed")
    else:
        scale = scale_of(values, newest.kind)
        on_scale = np.array([scale.to(value) for value in values])
        steps = find_steps(on_scale, scale.floor, budget, model if scale.logs else None)
        found = _Analysed(scale, on_scale, known, steps, newest.lower_is_better)
        levels = tuple(_levels(found))
        changes = tuple(_changes(found, points, machines))
    return Series(
        metric,
        newest.title,
        f"{newest.unit}/token" if per_token else newest.unit,
        newest.lower_is_better,
        points,
        levels,
        changes,
        tuple(notes),
    )


def _value(number: Number | None, per_token: bool) -> float | None:
    if number is None or not usable(number.value):
        return None
    return number.value / number.per_token if per_token and number.per_token else number.value


def _notes(numbers: Sequence[Number | None], runs: int) -> list[str]:
    bad = sum(number is not None and not usable(number.value) for number in numbers)
    absent = sum(number is None for number in numbers)
    said = ((bad, "gave no finite number"), (absent, "have no such number"))
    return [f"{count} of {runs} runs {words}" for count, words in said if count]


def _levels(found: _Analysed) -> Iterator[Level]:
    sd, df = found.steps.scatter.spread.sd, found.steps.scatter.spread.df
    for first, after in found.bounds:
        middle = center(found.values[first:after], sd)
        runs = after - first
        wide = sd * math.sqrt(found.steps.scatter.variance(runs))
        reach = t_quantile(LEVEL, df) * wide
        low, high = (found.scale.back(middle + side * reach) for side in (-1, 1))
        places = found.places[first], found.places[after - 1]
        yield Level(*places, found.scale.back(middle), (low, high))


def _changes(
    found: _Analysed, points: Sequence[StoredPoint], machines: MachineChanges
) -> Iterator[ChangePoint]:
    steps, percent = found.steps.found, found.scale.percent
    lengths = [after - first for first, after in found.bounds]
    for number, step in enumerate(steps):
        first, last = (found.places[place] for place in step.within)
        standing: Standing = "confirmed"
        if _returned(number, steps, lengths, found.steps.scatter):
            standing = "returned"
        elif _accepted(points, first, last):
            standing = "accepted"
        low, high = step.interval
        # The runs between that lack a value may be of the new level too.
        earliest = found.places[step.within[0] - 1] + 1
        yield ChangePoint(
            found.places[step.place],
            percent(step.change, step.before),
            (percent(low, step.before), percent(high, step.before)),
            found.better is not None and (step.sign > 0) == found.better,
            standing,
            lengths[number + 1],
            (first, last),
            suspects(machines, earliest, last),
        )


def _returned(number: int, found: Sequence[Step], lengths: Sequence[int], scatter: Scatter) -> bool:
    """Return whether a later level is back where it was before a change, or beyond.

    `lengths`: runs of each level.
    """
    step = found[number]
    for later in range(number + 1, len(found)):
        after = found[later].before + found[later].change
        left = step.sign * (after - step.before)
        noise = LEVEL_95 * scatter.error(lengths[number], lengths[later + 1])
        if left <= max(RETURNED_SHARE * abs(step.change), min(noise, abs(step.change) / 2)):
            return True
    return False


def _accepted(points: Sequence[StoredPoint], first: int, last: int) -> bool:
    """Return whether a person accepted a change that happened between these places.

    The accepted run is one of them, or follows them and only red runs lie between.
    """
    for place in range(first, len(points)):
        if points[place].accepted:
            return True
        if place >= last and points[place].period is not None:
            return False
    return False
