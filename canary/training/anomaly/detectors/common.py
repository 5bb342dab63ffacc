"""What detectors share: their protocol, the types of alerts, and when a lasting condition is
reported again. Pure."""

from __future__ import annotations

from collections.abc import Iterable
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


def alert(
    type: str, step: int, message: str, value: float | None, limit: float | None, **metadata: Any
) -> Alert:
    """Return an alert of one of the `TYPES`."""
    return Alert(*TYPES[type], type, message, step, value, limit, metadata)


class Episodes:
    """Limits reports: a condition that lasts is not reported at every step."""

    def __init__(self) -> None:
        self._held_at: dict[str, int] = {}
        self._reported_at: dict[str, int] = {}
        self._now = 0

    def next(self) -> None:
        """Move to the next observation."""
        self._now += 1

    def is_new(self, condition: str, holds: bool) -> bool:
        """Return whether to report `condition` now."""
        if not holds:
            return False
        since = self._now - self._held_at.get(condition, -AGAIN)
        self._held_at[condition] = self._now
        if since <= QUIET and self._now - self._reported_at[condition] < AGAIN:
            return False
        self._reported_at[condition] = self._now
        return True
