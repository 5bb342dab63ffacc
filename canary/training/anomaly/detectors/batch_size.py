"""Lasting changes of the batch size that raise the loss or the time per sample. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator

from canary.record.alert import Alert
from canary.training.anomaly.detectors.common import alert, shift_of
from canary.training.anomaly.observation import Observation

ENOUGH = 10
"""Steps of one size before it is judged: an epoch's smaller last batch is not a change."""
SURE = 6.0
WHOLE = 0.9
"""At least this share of the new values is above the old mean: not a few outliers."""


class _Stretch:
    """Consecutive steps of one batch size: losses, and seconds per sample."""

    def __init__(self, size: int, window: int) -> None:
        self.size = size
        self.steps = 0
        self.values: dict[str, deque[float]] = {
            "the loss": deque(maxlen=window),
            "the time per sample": deque(maxlen=window),
        }

    def add(self, observation: Observation) -> None:
        self.steps += 1
        seconds = observation.wall_s and observation.wall_s / self.size
        for values, value in zip(self.values.values(), (observation.loss, seconds), strict=True):
            if value is not None and math.isfinite(value):
                values.append(value)


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
        if self._new.steps < ENOUGH:
            return
        found = None
        if self._usual.steps >= ENOUGH:
            found = self._impact(observation.step, self._usual, self._new)
            if found is not None:
                yield found
        if found or self._usual.steps < ENOUGH or self._new.steps >= self._window:
            self._usual, self._new = self._new, None

    def _impact(self, step: int, before: _Stretch, after: _Stretch) -> Alert | None:
        for what, now in after.values.items():
            was = before.values[what]
            if min(len(was), len(now)) < ENOUGH:
                continue
            shift = shift_of(was, now)
            rise = shift.difference / abs(shift.before) if shift.before else 0.0
            above = sum(value > shift.before for value in now)
            if rise > self._threshold and shift.z > SURE and above >= WHOLE * len(now):
                words = f"{what} rose by {100 * rise:.3g}% when the batch size changed from "
                words += f"{before.size} to {after.size}"
                sizes, means = [before.size, after.size], [shift.before, shift.after]
                more = {"what": what, "batch_size": sizes, "mean": means}
                return alert("batch_size_impact", step, words, rise, self._threshold, **more)
        return None
