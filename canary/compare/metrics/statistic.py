"""One number of a curve: its window and its statistic. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from canary.config.metric_gates import MetricGate, Statistic
from canary.record.curves import Curve

Point = tuple[int, float]
"""A step and the metric's value at it."""
LARGEST = 1e100
"""A larger value is no measurement, and its square is no number."""
STATISTICS: dict[Statistic, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "last": lambda values: values[-1],
    "at": lambda values: values[0],
    "max": max,
    "min": min,
}


@dataclass(frozen=True)
class Reading:
    """What a gate sees of one run."""

    value: float | None
    """The statistic of the values that count; None if there is none."""
    problem: str = ""
    """Why there is no value, or which value is not finite."""
    broken: str = ""
    """The first value that is not finite, as text."""


def window(curve: Curve, gate: MetricGate) -> tuple[Point, ...]:
    """Return the points of a curve that a gate looks at; a negative step counts from the end."""
    points = tuple(zip(curve.steps, curve.values, strict=True))
    if gate.last is not None:
        return points[-gate.last :]
    ends = (gate.step, gate.step) if gate.statistic == "at" else (gate.from_step, gate.to_step)
    first, last = (_step(curve, step) for step in ends)
    return tuple(
        point
        for point in points
        if (first is None or point[0] >= first) and (last is None or point[0] <= last)
    )


def _step(curve: Curve, step: int | None) -> int | None:
    """Return the step that is meant: -1 is the curve's last."""
    return step if step is None or step >= 0 else curve.steps[-1] + 1 + step


def usable(value: float) -> bool:
    """Return whether a value can be computed with."""
    return abs(value) <= LARGEST


def reading(curve: Curve, gate: MetricGate) -> Reading:
    """Return a gate's number of one curve. A value that is not finite hides in no statistic."""
    points = window(curve, gate)
    if not points:
        at = f"it has no value at step {_step(curve, gate.step)}"
        return Reading(None, at if gate.statistic == "at" else "no value in the steps that count")
    bad = next((point for point in points if not usable(point[1])), None)
    if bad is not None:
        what = "too large" if math.isfinite(bad[1]) else "not finite"
        return Reading(None, f"{what} at step {bad[0]}", str(bad[1]))
    return Reading(STATISTICS[gate.statistic]([value for _, value in points]))
