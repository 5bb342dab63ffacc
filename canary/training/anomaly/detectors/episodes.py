"""The protocol of a detector, and when a condition that lasts is told again. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from canary.record.alert import Alert
from canary.training.anomaly.observation import Observation

QUIET = 10
"""Observations without the condition after which it is a new one when it comes back."""
AGAIN = 100
"""Observations after which a condition that still holds is told once more."""


class Detector(Protocol):
    """Anything that looks at steps in order. A detector of one's own needs no base class."""

    def observe(self, observation: Observation) -> Iterable[Alert]:
        """What is wrong at this step; nothing for most."""


class Episodes:
    """Tells the beginning of each condition, not each step of it."""

    def __init__(self) -> None:
        self._held_at: dict[str, int] = {}
        self._told_at: dict[str, int] = {}
        self._now = 0

    def next(self) -> None:
        """The next observation."""
        self._now += 1

    def begins(self, condition: str, holds: bool) -> bool:
        """Whether `condition` is to be told now."""
        if not holds:
            return False
        since = self._now - self._held_at.get(condition, -AGAIN)
        self._held_at[condition] = self._now
        if since <= QUIET and self._now - self._told_at[condition] < AGAIN:
            return False
        self._told_at[condition] = self._now
        return True
