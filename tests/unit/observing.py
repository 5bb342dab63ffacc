"""Runs of observations with something chosen in them, for the tests of the detectors."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from canary.anomaly import AdvancedAnomalyDetector, Alert, Observation
from canary.training.anomaly.observation import Agreement, Sample

Value = Any
"""A number, or a function of the step that gives one."""


def at(step: int, value: Any) -> Any:
    """The value of a signal at a step."""
    return value(step) if callable(value) else value


def run(steps: int, **signals: Value) -> list[Observation]:
    """A run of `steps`; each signal is a value or a function of the step, counted from 1."""
    return [
        Observation(step=step, **{name: at(step, value) for name, value in signals.items()})
        for step in range(1, steps + 1)
    ]


def judged(observations: Sequence[Observation], **arguments: Any) -> list[Alert]:
    """All alerts of a run."""
    detector = AdvancedAnomalyDetector(save_alerts=False, **arguments)
    return [alert for each in observations for alert in detector.judge(each)]


def types(observations: Sequence[Observation], **arguments: Any) -> set[str]:
    """Their types."""
    return {alert.type for alert in judged(observations, **arguments)}


def wobble(level: float, sd: float = 0.05, seed: int = 0) -> Callable[[int], float]:
    """White noise about a level, the same at each call for a step."""

    def value(step: int) -> float:
        return level * (1 + sd * random.Random(f"{seed} {step}").gauss(0, 1))

    return value


def before_after(first: Value, second: Value, change: int) -> Callable[[int], Any]:
    """One signal until the step `change`, another from then on."""
    return lambda step: at(step, first if step < change else second)


def growing(start: float, factor: float) -> Callable[[int], float]:
    """Exponential growth."""
    return lambda step: start * factor**step


def rewards(mean: Value, std: float = 0.5, count: int = 64) -> Callable[[int], Sample]:
    """A step's rewards."""
    return lambda step: Sample(at(step, mean), std, count)


def agreement(error: Value, count: int = 8, scale: float = 1.0) -> Callable[[int], Agreement]:
    """Predictions that miss by `error`, of rewards of this root mean square."""

    def value(step: int) -> Agreement:
        off = at(step, error)
        return Agreement(off, off / 2, off / 4, scale * scale, count)

    return value


def cosine(steps: int, peak: float = 1e-4, warmup: int = 0) -> Callable[[int], tuple[float, ...]]:
    """Linear warm-up from zero, then cosine to zero."""

    def value(step: int) -> tuple[float, ...]:
        done = step - 1
        if done < warmup:
            return (peak * done / warmup,)
        share = (done - warmup) / max(1, steps - warmup)
        return (peak * 0.5 * (1 + math.cos(math.pi * share)),)

    return value
