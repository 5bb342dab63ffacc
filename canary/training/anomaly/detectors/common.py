"""What detectors share: their protocol, the types of alerts, and when a lasting condition is
reported again. Statistics of short, noisy series that are correlated from step to step. Pure."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from canary.record.alert import Alert, Severity
from canary.training.anomaly.observation import Observation

TYPES: dict[str, tuple[Severity, str]] = {
    "gradient_explosion": ("critical", "gradient"),
    "gradient_vanishing": ("high", "gradient"),
    "gradient_variance": ("medium", "gradient"),
    "lr_too_high": ("high", "learning_rate"),
    "lr_too_low": ("medium", "learning_rate"),
    "lr_sudden_change": ("medium", "learning_rate"),
    "batch_size_impact": ("medium", "batch_size"),
    "convergence_plateau": ("medium", "convergence"),
    "convergence_divergence": ("high", "convergence"),
    "loss_spike": ("medium", "convergence"),
    "calibration_poor": ("medium", "reward_drift"),
    "calibration_drift": ("medium", "reward_drift"),
    "reward_distribution_drift": ("medium", "reward_drift"),
    "loss_not_finite": ("critical", "numerics"),
    "gradient_not_finite": ("critical", "numerics"),
    "kl_not_finite": ("high", "numerics"),
    "reward_not_finite": ("high", "numerics"),
    "kl_blowup": ("high", "rlhf"),
    "entropy_collapse": ("high", "rlhf"),
    "clip_fraction_saturation": ("medium", "rlhf"),
}
"""Severity and category of each type."""
QUIET = 10
"""After this many observations without the condition, its return is a new episode."""
AGAIN = 100
"""A condition that still holds is reported again after this many observations."""


class Detector(Protocol):
    """Anything that checks steps in order. Your detector needs no base class."""

    def observe(self, observation: Observation) -> Iterable[Alert]:
        """Return the alerts of this step; most steps have no alerts."""


class Watch:
    """Base of the canary's detectors: a condition that lasts is not reported at every step."""

    def __init__(self) -> None:
        self._held_at: dict[str, int] = {}
        self._reported_at: dict[str, int] = {}
        self._now = 0
        """How many observations had what this detector checks."""

    def observe(self, observation: Observation) -> list[Alert]:
        """Return the alerts of this step."""
        self._step, self._alerts = observation.step, list[Alert]()
        self.check(observation)
        return self._alerts

    def check(self, observation: Observation) -> None:
        """Report what is wrong in this step."""
        raise NotImplementedError

    def report(
        self,
        kind: str,
        words: str,
        value: float | None,
        limit: float | None,
        *,
        now: int | None = None,
        at: int | None = None,
        **metadata: Any,
    ) -> None:
        """Raise an alert of one of the `TYPES`, unless its condition lasts and was told not long
        ago. `now`: for a condition with a count of its own. `at`: the step of a change, which does
        not last."""
        condition = f"{kind} {metadata.get('group')} {now is None}"
        now = self._now if now is None else now
        lasts = at is None and now - self._held_at.get(condition, -AGAIN) <= QUIET
        self._held_at[condition] = now
        if lasts and now - self._reported_at[condition] < AGAIN:
            return
        self._reported_at[condition] = now
        step = self._step if at is None else at
        self._alerts.append(Alert(*TYPES[kind], kind, words, step, value, limit, metadata))


MOST_CORRELATED = 0.95
"""Within a window, a series more correlated than this looks like a drift."""
INDEPENDENT = 10.0
"""Fewer independent values than this do not show how a series varies."""


@dataclass(frozen=True)
class Shift:
    """The difference between the mean of recent values and that of earlier ones."""

    before: float
    after: float
    z: float
    """In standard errors, corrected for correlation; signed like `after - before`."""
    independent: float
    """The number of independent values that the earlier values are worth."""

    def sure(self, errors: float) -> bool:
        """Return whether the shift exceeds `errors` standard errors, from enough earlier values."""
        return abs(self.z) > errors and self.independent >= INDEPENDENT

    @property
    def difference(self) -> float:
        """Return `after - before`."""
        return self.after - self.before


def long_run(values: Sequence[float]) -> tuple[float, float, float]:
    """Return mean, variance, and count times the variance of the mean, with lag-1 correlation.

    The correlation is corrected for its bias in short series, (1 + 3 phi) / n (Kendall 1954). The
    variance is corrected for the few independent values in the mean.
    """
    count = len(values)
    mean = statistics.fmean(values)
    centred = [value - mean for value in values]
    squares = math.fsum(c * c for c in centred)
    variance = squares / (count - 1)
    if variance <= 0.0 or count < 4:
        return mean, variance, variance
    lagged = math.fsum(a * b for a, b in zip(centred, islice(centred, 1, None), strict=False))
    phi = lagged / squares
    phi = min(MOST_CORRELATED, max(0.0, phi + (1 + 3 * phi) / count))
    spread = (1 + phi) / (1 - phi)
    variance /= max(0.2, 1 - spread / count)
    return mean, variance, variance * spread


def shift_of(before: Sequence[float], after: Sequence[float]) -> Shift:
    """Return the shift between two parts of one series; `before` gives the variation."""
    mean, variance, spread = long_run(before)
    now = statistics.fmean(after)
    error = math.sqrt(min(spread / len(before), variance) + min(spread / len(after), variance))
    difference = now - mean
    if error <= 0.0:
        z = 0.0 if difference == 0.0 else math.copysign(math.inf, difference)
        return Shift(mean, now, z, len(before))
    return Shift(mean, now, difference / error, len(before) * variance / spread)


def split(values: deque[float], recent: int) -> tuple[list[float], list[float]]:
    """Return a window in two parts: its earlier values, and its last `recent` values."""
    window = list(values)
    return window[:-recent], window[-recent:]


def spread_of(values: Sequence[float]) -> float:
    """Return the standard deviation, estimated from the median absolute deviation (Gaussian)."""
    centre = statistics.median(values)
    return 1.4826 * statistics.median(abs(value - centre) for value in values)


def trend_of(values: Sequence[float]) -> tuple[float, float]:
    """Return how far a straight line moves from the first value to the last.

    Also returns its standard error, corrected for correlation of the residuals."""
    count = len(values)
    places = [place - (count - 1) / 2 for place in range(count)]
    squares = count * (count * count - 1) / 12
    level = statistics.fmean(values)
    slope = math.fsum(x * y for x, y in zip(places, values, strict=True)) / squares
    residuals = [y - level - slope * x for x, y in zip(places, values, strict=True)]
    spread = max(0.0, long_run(residuals)[2])
    return slope * (count - 1), (count - 1) * math.sqrt(spread / squares)
