"""What a loop sets: its learning rate and its batch size. Pure.

A rate may be out of bounds or change suddenly. Another batch size may raise the loss or the time
per sample.

A schedule of the rate is recognised by its shape. Each change is about as large as the previous
one, or smaller, as in warm-up and decay. A schedule may hold each rate for several steps. Any other
change is judged one step later, because a ramp may have begun. A rise back to an earlier rate of
the run is a restart.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Any

from canary.training.anomaly.detectors.common import Watch, shift_of
from canary.training.anomaly.observation import Observation

HELD = 10
"""A rate is too low after this many unchanged steps below the minimum: warm-up begins at zero and
decay ends there."""
HELD_BY_HAND = 2
"""The same for a rate without a scheduler."""
CONTINUES = 3.0
"""A change continues the previous one if it is at most this many times as large ..."""
STAIR = 0.25
"""... and, if the rate was held in between, at least this share of it: a drop to a tenth, and then
to a hundredth, is no ramp."""
AS_LONG = 1.5
"""A schedule holds each rate for as many steps, or at most this many times as long."""
RETURNS = 1.05
"""A rise to at most this many times the run's highest rate is a restart."""


@dataclass
class _Group:
    """One parameter group's rates so far."""

    last: float
    change: float
    """The last change that was not 0; the first step counts as a linear warm-up from zero."""
    highest: float
    same: int = 1
    """Steps with exactly this rate."""
    held: int = 1
    """Steps with the rate before."""
    ramp: bool = False
    """Whether the last change continued the one before."""
    pending: tuple[int, float, float] | None = None
    """Step, rate before it, and change, if this may be the first step of a ramp."""


class LearningRateDetector(Watch):
    """Checks each parameter group separately."""

    def __init__(self, change_threshold: float, min_lr: float, max_lr: float) -> None:
        super().__init__()
        self._change = change_threshold
        self._lowest, self._highest = min_lr, max_lr
        self._groups: dict[int, _Group] = {}

    def check(self, observation: Observation) -> None:
        """Check the rates of one step."""
        self._now += 1
        peaks = observation.peak_rates
        for place, rate in enumerate(observation.learning_rates):
            if math.isfinite(rate):
                peak = peaks[place] if place < len(peaks) else None
                self._group(place, rate, by_hand=bool(peaks) and peak is None)

    def _group(self, place: int, rate: float, by_hand: bool) -> None:
        if rate > self._highest:
            words = f"learning rate {rate:.4g} is above the limit {self._highest:g}"
            self.report("lr_too_high", words, rate, self._highest, group=place)
        group = self._groups.get(place)
        if group is None:
            group = self._groups[place] = _Group(rate, rate, rate)
        else:
            self._moved(place, group, rate, by_hand)
        patience = HELD_BY_HAND if by_hand and rate > 0 else HELD
        if group.ramp:
            patience = max(patience, 2 * group.held)
        if rate < self._lowest and group.same >= patience:
            words = f"learning rate {rate:.4g} has stayed below {self._lowest:g} for {group.same} "
            self.report("lr_too_low", words + "steps", rate, self._lowest, group=place)

    def _moved(self, place: int, group: _Group, rate: float, by_hand: bool) -> None:
        change = rate - group.last
        if group.pending is not None:
            began, before, first = group.pending
            group.pending = None
            if not (_continues(first, change) and _continues(change, first)):
                self._sudden(began, place, before, before + first)
        if change == 0.0:
            group.same += 1
            return
        least = 0.0 if group.same == 1 else STAIR
        ramp = _continues(group.change, change, least) and group.same <= AS_LONG * group.held
        restart = change > 0 and rate <= RETURNS * group.highest
        if abs(change) > self._change * group.last > 0 and not ramp and not restart:
            if by_hand:
                self._sudden(self._step, place, group.last, rate)
            else:
                group.pending = (self._step, group.last, change)
        group.held, group.ramp = group.same, ramp
        group.same, group.last, group.change = 1, rate, change
        group.highest = max(group.highest, rate)

    def _sudden(self, step: int, place: int, before: float, after: float) -> None:
        words = f"learning rate changed from {before:.4g} to {after:.4g} in one step"
        relative = abs(after - before) / before
        more: dict[str, Any] = {"group": place, "before": before, "after": after}
        self.report("lr_sudden_change", words, relative, self._change, at=step, **more)


def _continues(before: float, change: float, least: float = 0.0) -> bool:
    """Return whether `change` has the direction of `before`, at most CONTINUES and at least `least`
    times its size."""
    return before * change > 0 and least <= change / before <= CONTINUES


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


class BatchSizeDetector(Watch):
    """Compares the last `window_size` steps of one batch size with the first steps of the next."""

    def __init__(self, performance_threshold: float, window_size: int) -> None:
        super().__init__()
        self._threshold = performance_threshold
        self._window = max(window_size, ENOUGH)
        self._usual: _Stretch | None = None
        self._new: _Stretch | None = None

    def check(self, observation: Observation) -> None:
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
        if self._usual.steps >= ENOUGH:
            self._compare(self._usual, self._new)
        if self._alerts or self._usual.steps < ENOUGH or self._new.steps >= self._window:
            self._usual, self._new = self._new, None

    def _compare(self, before: _Stretch, after: _Stretch) -> None:
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
                more: dict[str, Any] = {"what": what, "batch_size": sizes, "mean": means}
                kind, limit = "batch_size_impact", self._threshold
                self.report(kind, words, rise, limit, at=self._step, **more)
                return
