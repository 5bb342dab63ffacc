"""Lasting changes of the batch size that raise the loss or the time per sample. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from canary.record.alert import Alert
from canary.training.anomaly.detectors.series import Shift, shift_of
from canary.training.anomaly.observation import Observation

ENOUGH = 10
"""Steps of one size before it is judged: an epoch's smaller last batch is not a change."""
SURE = 6.0


@dataclass
class _Stretch:
    """Consecutive steps of one batch size: losses, and seconds per sample."""

    size: int
    window: int
    steps: int = 0
    losses: deque[float] = field(default_factory=deque)
    seconds: deque[float] = field(default_factory=deque)

    def add(self, observation: Observation) -> None:
        self.steps += 1
        for values, value in (
            (self.losses, observation.loss),
            (self.seconds, observation.wall_s and observation.wall_s / self.size),
        ):
            if value is not None and math.isfinite(value):
                values.append(value)
                if len(values) > self.window:
                    values.popleft()


class BatchSizeDetector:
    """Compares the last `window_size` steps of one batch size with the first steps of the next."""

    def __init__(self, performance_threshold: float = 0.1, window_size: int = 20) -> None:
        self._threshold = performance_threshold
        self._window = max(window_size, ENOUGH)
        self._usual: _Stretch | None = None
        self._new: _Stretch | None = None

    def observe(self, observation: Observation) -> Iterator[Alert]:
        """Check one step."""
        size = observation.batch_size
        if not size:
            return
        if self._usual is None:
            self._usual = _Stretch(size, self._window)
        if size == self._usual.size:
            self._usual.add(observation)
            self._new = None
            return
        if self._new is None or self._new.size != size:
            self._new = _Stretch(size, self._window)
        self._new.add(observation)
        if self._usual.steps < ENOUGH and self._new.steps >= ENOUGH:
            self._usual, self._new = self._new, None  # nothing to compare with
            return
        if self._new.steps >= ENOUGH:
            found = list(self._impact(observation.step, self._usual, self._new))
            yield from found
            if found or self._new.steps >= self._window:
                self._usual, self._new = self._new, None

    def _impact(self, step: int, before: _Stretch, after: _Stretch) -> Iterator[Alert]:
        pairs = (
            ("the loss", before.losses, after.losses),
            ("the time per sample", before.seconds, after.seconds),
        )
        for what, was, now in pairs:
            if min(len(was), len(now)) < ENOUGH:
                continue
            shift = shift_of(was, now)
            scale = abs(shift.before)
            if scale > 0 and shift.difference / scale > self._threshold and self._sure(shift, now):
                yield Alert(
                    "medium",
                    "batch_size",
                    "batch_size_impact",
                    f"{what} rose by {100 * shift.difference / scale:.3g}% when the batch size "
                    f"changed from {before.size} to {after.size}",
                    step,
                    shift.difference / scale,
                    self._threshold,
                    {
                        "what": what,
                        "batch_size": [before.size, after.size],
                        "mean": [shift.before, shift.after],
                    },
                )
                return

    def _sure(self, shift: Shift, now: deque[float]) -> bool:
        """Return whether the new values are surely higher as a whole, not because of outliers."""
        above = sum(value > shift.before for value in now)
        return shift.z > SURE and above >= 0.9 * len(now)
