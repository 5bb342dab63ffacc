"""Learning rates that are out of bounds, or change suddenly outside a schedule. Pure.

A schedule is recognised by its shape. Each change is about as large as the previous one, or
smaller, as in warm-up and decay. A schedule may hold each rate for several steps. Any other change
is judged one step later, because a ramp may have begun. A rise back to an earlier rate of the run
is a restart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from canary.record.alert import Alert
from canary.training.anomaly.detectors.common import Episodes, alert
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


class LearningRateDetector:
    """Checks each parameter group separately."""

    def __init__(
        self, change_threshold: float = 0.3, min_lr: float = 1e-8, max_lr: float = 1.0
    ) -> None:
        self._change = change_threshold
        self._lowest = min_lr
        self._highest = max_lr
        self._groups: dict[int, _Group] = {}
        self._episodes = Episodes()

    def observe(self, observation: Observation) -> Iterator[Alert]:
        """Check the rates of one step."""
        self._episodes.next()
        for place, rate in enumerate(observation.learning_rates):
            if not math.isfinite(rate):
                continue
            peaks = observation.peak_rates
            peak = peaks[place] if place < len(peaks) else None
            by_hand = bool(peaks) and peak is None
            yield from self._group(observation.step, place, rate, by_hand)

    def _group(self, step: int, place: int, rate: float, by_hand: bool) -> Iterator[Alert]:
        if self._episodes.is_new(f"high{place}", rate > self._highest):
            words = f"learning rate {rate:.4g} is above the limit {self._highest:g}"
            yield alert("lr_too_high", step, words, rate, self._highest, group=place)
        group = self._groups.get(place)
        if group is None:
            group = self._groups[place] = _Group(rate, rate, rate)
        else:
            yield from self._moved(step, place, group, rate, by_hand)
        patience = HELD_BY_HAND if by_hand and rate > 0 else HELD
        if group.ramp:
            patience = max(patience, 2 * group.held)
        if self._episodes.is_new(f"low{place}", rate < self._lowest and group.same >= patience):
            words = f"learning rate {rate:.4g} has stayed below {self._lowest:g} for {group.same} "
            yield alert("lr_too_low", step, words + "steps", rate, self._lowest, group=place)

    def _moved(
        self, step: int, place: int, group: _Group, rate: float, by_hand: bool
    ) -> Iterator[Alert]:
        change = rate - group.last
        if group.pending is not None:
            began, before, first = group.pending
            group.pending = None
            if not (_continues(first, change) and _continues(change, first)):
                yield self._sudden(began, place, before, before + first)
        if change == 0.0:
            group.same += 1
            return
        least = 0.0 if group.same == 1 else STAIR
        ramp = _continues(group.change, change, least) and group.same <= AS_LONG * group.held
        restart = change > 0 and rate <= RETURNS * group.highest
        if abs(change) > self._change * group.last > 0 and not ramp and not restart:
            if by_hand:
                yield self._sudden(step, place, group.last, rate)
            else:
                group.pending = (step, group.last, change)
        group.held, group.ramp = group.same, ramp
        group.same, group.last, group.change = 1, rate, change
        group.highest = max(group.highest, rate)

    def _sudden(self, step: int, place: int, before: float, after: float) -> Alert:
        words = f"learning rate changed from {before:.4g} to {after:.4g} in one step"
        relative = abs(after - before) / before
        more = {"group": place, "before": before, "after": after}
        return alert("lr_sudden_change", step, words, relative, self._change, **more)


def _continues(before: float, change: float, least: float = 0.0) -> bool:
    """Return whether `change` has the direction of `before`, at most CONTINUES and at least `least`
    times its size."""
    return before * change > 0 and least <= change / before <= CONTINUES
