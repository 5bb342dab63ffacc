"""Learning rates: out of bounds, or changed at once where no schedule changes them. Pure.

A schedule is told by its shape. Its changes continue: each is about as large as the one before it,
as in warm-up and decay, or smaller. What is no continuation is judged one step later, when it is
known whether a ramp began there. A rise back to what the run had before is a restart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from canary.record.alert import Alert
from canary.training.anomaly.detectors.episodes import Episodes
from canary.training.anomaly.observation import Observation

HELD = 10
"""Steps for which a rate stays below the minimum, unchanged, before it is too low: a warm-up
begins at zero and a decay ends there."""
HELD_BY_HAND = 2
"""The same for a rate that no scheduler moves."""
CONTINUES = 3.0
"""A change is the continuation of one that is at least a third of it."""
RETURNS = 1.05
"""A rise to no more than this, over the run's highest rate, is a restart."""


@dataclass
class _Group:
    """One parameter group's rates so far."""

    last: float
    change: float
    """The last change; at the first step, as if a linear warm-up had begun at zero."""
    highest: float
    same: int = 1
    """Steps with this very rate."""
    pending: tuple[int, float, float] | None = None
    """Step, rate before, and change that may be the first of a ramp."""


class LearningRateDetector:
    """Looks at each parameter group by itself."""

    def __init__(
        self, change_threshold: float = 0.3, min_lr: float = 1e-8, max_lr: float = 1.0
    ) -> None:
        self._change = change_threshold
        self._lowest = min_lr
        self._highest = max_lr
        self._groups: dict[int, _Group] = {}
        self._episodes = Episodes()

    def observe(self, observation: Observation) -> Iterator[Alert]:
        """Looks at the rates of one step."""
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
        if self._episodes.begins(f"high{place}", rate > self._highest):
            yield Alert(
                "high",
                "learning_rate",
                "lr_too_high",
                f"learning rate {rate:.4g} is above {self._highest:g}",
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
        held = HELD_BY_HAND if by_hand and rate > 0 else HELD
        if self._episodes.begins(f"low{place}", rate < self._lowest and group.same >= held):
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
            f"learning rate {before:.4g} -> {after:.4g} from one step to the next",
            step,
            relative,
            self._change,
            {"group": place, "before": before, "after": after},
        )


def _continues(before: float, change: float) -> bool:
    """Whether `change` goes on where `before` went, no more than so many times as fast."""
    return before * change > 0 and abs(change) <= CONTINUES * abs(before)


def _goes_on_from(first: float, change: float) -> bool:
    """Whether `first` was the beginning of a ramp, of which `change` is the next step."""
    return _continues(first, change) and _continues(change, first)
