"""One number of a curve: its window, its statistic, and its steps beyond a limit. Pure."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from canary.config.metric_gates import OF_SINGLE_STEPS, MetricGate
from canary.record.curves import Curve
from canary.record.spikes import MIN_POINTS, is_far

Point = tuple[int, float]
"""A step and the metric's value at it."""


@dataclass(frozen=True)
class Reading:
    """What a gate sees of one run."""

    points: tuple[Point, ...]
    """The values that count."""
    value: float | None
    """Their statistic; None if there is none."""
    problem: str = ""
    """Why there is no value, or which value is not finite."""
    broken: str = ""
    """The first value that is not finite, as text."""


def window(curve: Curve, gate: MetricGate) -> tuple[Point, ...]:
    """Return the points of a curve that a gate looks at; a negative step counts from the end."""
    points = tuple(zip(curve.steps, curve.values, strict=True))
    if gate.statistic == "at":
        return points
    if gate.last is not None:
        return points[-gate.last :]
    first, last = (_step(curve.steps, step) for step in (gate.from_step, gate.to_step))
    return tuple(
        point
        for point in points
        if (first is None or point[0] >= first) and (last is None or point[0] <= last)
    )


def _step(steps: Sequence[int], step: int | None) -> int | None:
    """Return the step that is meant: -1 is the last."""
    return step if step is None or step >= 0 else steps[-1] + 1 + step


LARGEST = 1e100
"""A larger value is no measurement, and its square is no number."""


def usable(value: float) -> bool:
    """Return whether a value can be computed with."""
    return abs(value) <= LARGEST


def reading(curve: Curve, gate: MetricGate) -> Reading:
    """Return a gate's number of one curve. A value that is not finite hides in no statistic."""
    counted = points = window(curve, gate)
    if gate.statistic == "at":
        step = _step(curve.steps, gate.step)
        counted = tuple(point for point in points if point[0] == step)
        if not counted:
            return Reading((), None, f"it has no value at step {step}")
    if not counted:
        return Reading((), None, "no value in the steps that count")
    broken = _broken(points, counted)
    if broken is None and gate.of_step is not None:
        start = _start(curve, gate.of_step)
        if isinstance(start, str):
            return Reading(points, None, start)
        points, counted = (
            tuple((step, value / start) for step, value in some) for some in (points, counted)
        )
        broken = _broken(points, counted)
    return broken or Reading(points, value_of(counted, gate))


def _broken(points: tuple[Point, ...], counted: Sequence[Point]) -> Reading | None:
    """Return the reading of points with a value that cannot be computed with; None without one."""
    bad = next((point for point in counted if not usable(point[1])), None)
    if bad is None:
        return None
    what = "too large" if math.isfinite(bad[1]) else "not finite"
    return Reading(points, None, f"{what} at step {bad[0]}", str(bad[1]))


def _start(curve: Curve, step: int) -> float | str:
    """Return the value that a statistic is divided by, or why there is none."""
    wanted = _step(curve.steps, step)
    points = zip(curve.steps, curve.values, strict=True)
    found = next((value for at, value in points if at == wanted), None)
    if found is None:
        return f"it has no value at step {wanted}"
    if not 0 < found <= LARGEST:
        return f"its value at step {wanted} is {found:g}, which no value can be divided by"
    return found


def value_of(points: Sequence[Point], gate: MetricGate) -> float:
    """Return the statistic of at least one finite point."""
    values = [value for _, value in points]
    if gate.statistic == "share_above":
        assert gate.above is not None
        return sum(value >= gate.above for value in values) / len(values)
    if gate.statistic == "area":
        return area(points)
    return STATISTICS[gate.statistic](values)


STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "last": lambda values: values[-1],
    "at": lambda values: values[0],
    "max": max,
    "min": min,
    "count": lambda values: float(len(values)),
}
"""Those that need only the values."""


def area(points: Sequence[Point]) -> float:
    """Return the area under a curve by trapezoids, divided by its steps: in the metric's unit."""
    width = points[-1][0] - points[0][0]
    if not width:
        return points[0][1]
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in itertools.pairwise(points)) / width


@dataclass(frozen=True)
class Bounds:
    """The allowed range of a value."""

    low: float = -math.inf
    high: float = math.inf
    exclusive: bool = False
    """Whether the ends are outside of it."""

    def breaks(self, value: float) -> bool:
        """Return whether a value is beyond a bound; one that is not a number always is."""
        if self.exclusive:
            return not self.low < value < self.high
        return not self.low <= value <= self.high


def bounds_of(gate: MetricGate, limit: float, low: float | None = None) -> Bounds:
    """Return the allowed range for a limit in the gate's bad direction.

    `low`: the lower limit of a gate for both directions; by default it is `limit` too."""
    return Bounds(
        low=-math.inf if gate.worse == "higher" else (limit if low is None else low),
        high=math.inf if gate.worse == "lower" else limit,
        exclusive=gate.exclusive and gate.worse != "both",
    )


def lone_spikes(points: Sequence[Point], gate: MetricGate, bounds: Bounds) -> list[int]:
    """Return the steps that alone put the statistic beyond its bounds, if they are few enough to
    be spikes; empty if more values say the same, or no others exist."""
    if not gate.spikes:
        return []
    if gate.statistic not in OF_SINGLE_STEPS:
        return _outliers(points, gate, bounds)
    beyond = [bounds.breaks(value) for _, value in points]
    if gate.statistic in ("last", "at"):
        steps = [step for step, _ in points]
        at = _step(steps, gate.step) if gate.statistic == "at" else None
        found = _around(beyond, len(points) - 1 if at is None else steps.index(at))
    else:
        found = [place for place, is_beyond in enumerate(beyond) if is_beyond]
    if len(found) > gate.spikes or len(found) == len(points):
        return []
    return [points[place][0] for place in found]


def _outliers(points: Sequence[Point], gate: MetricGate, bounds: Bounds) -> list[int]:
    """Return the steps far from all others without which the statistic is within its bounds."""
    if len(points) < max(MIN_POINTS, 2 * gate.spikes + 1) or gate.statistic == "count":
        return []
    middle = statistics.median(value for _, value in points)
    far = {step: abs(value - middle) for step, value in points}
    farthest = sorted(far, key=lambda step: -far[step])[: gate.spikes]
    spikes = [step for step in farthest if is_far(far[step], list(far.values()))]
    kept = [point for point in points if point[0] not in spikes]
    return spikes if spikes and not bounds.breaks(value_of(kept, gate)) else []


def _around(beyond: Sequence[bool], place: int) -> list[int]:
    """Return the places of the unbroken stretch beyond the limit around a place."""
    first = last = place
    while first > 0 and beyond[first - 1]:
        first -= 1
    while last + 1 < len(beyond) and beyond[last + 1]:
        last += 1
    return list(range(first, last + 1))
