"""Learning rates that are out of bounds, or change suddenly outside a schedule. Pure.

A schedule is recognised by its shape. Each change is about as large as the previous one, or
smaller, as in warm-up and decay. Any other change is judged one step later, because a ramp may have
begun. A rise back to an earlier rate of the run is a restart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from canary.record.alert import Alert
from canary.training.anomaly.detectors.episodes import Episodes
from canary.training.anomaly.observation import Observation

HELD = 10
"""A rate is too low after this many unchanged steps below the minimum: warm-up begins at zero and
decay ends there."""
HELD_BY_HAND = 2
"""The same for a rate without a scheduler."""
CONTINUES = 3.0
"""A change continues the previous one if it is at most this many times as large."""
RETURNS = 1.05
"""A rise to at most this many times the run's highest rate is a restart."""


@dataclass
class _Group:
    """One parameter group's rates so far."""

    last: float
    change: float
    """The last change; the first step counts as a linear warm-up from zero."""
    highest: float
    same: int = 1
    """Steps with exactly this rate."""
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
        extra = {"group": place}
        if self._episodes.is_new(f"high{place}", rate > self._highest):
            yield Alert(
                "high",
                "learning_rate",
                "lr_too_high",
                f"learning rate {rate:.4g} is above the limit {self._highest:g}",
                step,
                rate,
                self._highest,
                extra,
            )
        group = self._groups.get(place)
        if group is None:
            group = self._groups[place] = _Group(rate, rate, rate)
        else:
            yield from self._moved(step, place, group, rate, by_hand)
        patience = HELD_BY_HAND if by_hand and rate > 0 else HELD
        if self._episodes.is_new(f"low{place}", rate < self._lowest and group.same >= patience):
            yield Alert(
                "medium",
                "learning_rate",
                "lr_too_low",
                f"learning rate {rate:.4g} has stayed below {self._lowest:g} for {group.same} "
                "steps",
                step,
                rate,
                self._lowest,
                extra,
            )

    def _moved(
        self, step: int, place: int, group: _Group, rate: float, by_hand: bool
    ) -> Iterator[Alert]:
        change = rate - group.last
        if group.pending is not None:
            began, before, first = group.pending
            group.pending = None
            if not _goes_on_from(first, change):
                yield self._alert(began, place, before, before + first)
        relative = abs(change) / group.last if group.last > 0 else 0.0
        restart = change > 0 and rate <= RETURNS * group.highest
        sudden = relative > self._change and not _continues(group.change, change) and not restart
        if sudden and by_hand:
            yield self._alert(step, place, group.last, rate)
        elif sudden:
            group.pending = (step, group.last, change)
        group.same = group.same + 1 if change == 0.0 else 1
        group.last, group.change = rate, change
        group.highest = max(group.highest, rate)

    def _alert(self, step: int, place: int, before: float, after: float) -> Alert:
        relative = abs(after - before) / before
        return Alert(
            "medium",
            "learning_rate",
            "lr_sudden_change",
            f"learning rate changed from {before:.4g} to {after:.4g} in one step",
            step,
            relative,
            self._change,
            {"group": place, "before": before, "after": after},
        )


def _continues(before: float, change: float) -> bool:
    """Return whether `change` has the direction of `before` and at most CONTINUES its size."""
    return before * change > 0 and abs(change) <= CONTINUES * abs(before)


def _goes_on_from(first: float, change: float) -> bool:
    """Return whether `first` began a ramp of which `change` is the next step."""
    return _continues(first, change) and _continues(change, first)
