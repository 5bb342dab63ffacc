"""The protocol of a detector, and when a lasting condition is reported again. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from canary.record.alert import Alert
from canary.training.anomaly.observation import Observation

QUIET = 10
"""After this many observations without the condition, its return is a new episode."""
AGAIN = 100
"""A condition that still holds is reported again after this many observations."""


class Detector(Protocol):
    """Anything that checks steps in order. Your detector needs no base class."""

    def observe(self, observation: Observation) -> Iterable[Alert]:
        """Return the alerts of this step; most steps have no alerts."""


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
