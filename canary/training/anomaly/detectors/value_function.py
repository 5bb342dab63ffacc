"""A value function that gets worse, which a clipped gradient norm does not show. Pure."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterator

from canary.record.alert import Alert
from canary.training.anomaly.detectors.episodes import Episodes
from canary.training.anomaly.detectors.series import split
from canary.training.anomaly.observation import Observation, Sample

WINDOW = 100
LAST = 5
"""Steps whose median is what the value function is now, and what it was at first."""
KNOWN = 10
UNKNOWN = 1.0
"""What values of 0 cost where the spread of the scores is not told."""


class ValueDetector:
    """The value loss against its own past, and the variance of the returns that it leaves; both
    only while the values are worse than values of 0, whose loss is half the scores' mean square:
    where scores hardly differ, or the first ones come late, the ratios say nothing.

    Args:
        loss_limit: times the larger of its first and its usual value loss, at which it blew up.
        unexplained_limit: Var(returns - values) / Var(returns), 1 - explained variance, from which
            on the values teach the policy noise.
    """

    def __init__(self, loss_limit: float = 10.0, unexplained_limit: float = 3.0) -> None:
        self._loss_limit = loss_limit
        self._unexplained_limit = unexplained_limit
        self._losses: deque[float] = deque(maxlen=WINDOW)
        self._first: list[float] = []
        self._nothing: deque[float] = deque(maxlen=LAST)
        self._unexplained: deque[float] = deque(maxlen=LAST)
        self._episodes = Episodes()

    def observe(self, observation: Observation) -> Iterator[Alert]:
        """Looks at one step; a value loss that is not finite is another detector's matter."""
        loss, explained = observation.value_loss, observation.explained_variance
        if loss is None or not math.isfinite(loss):
            return
        self._episodes.next()
        self._losses.append(loss)
        if len(self._first) < LAST:
            self._first.append(loss)
        self._nothing.append(_loss_of_zeros(observation.rewards))
        if explained is not None and math.isfinite(explained):
            self._unexplained.append(1 - explained)
        before, last = split(self._losses, LAST)
        now, nothing = statistics.median(last), statistics.median(self._nothing)
        worse = now > nothing
        if len(self._losses) >= KNOWN:
            yield from self._blew_up(observation.step, now, before, worse)
        if len(self._unexplained) == LAST:
            yield from self._misleads(observation.step, now, worse)

    def _blew_up(self, step: int, now: float, before: list[float], worse: bool) -> Iterator[Alert]:
        usual = max(statistics.median(self._first), statistics.median(before))
        limit = self._loss_limit * usual
        if self._episodes.begins("loss", worse and now > limit):
            yield Alert(
                "high",
                "rlhf",
                "value_loss_blowup",
                f"value loss {now:.4g}, after {usual:.4g}: the value function diverges",
                step,
                now,
                limit,
                {"before": usual},
            )

    def _misleads(self, step: int, loss: float, worse: bool) -> Iterator[Alert]:
        share = statistics.median(self._unexplained)
        if self._episodes.begins("variance", worse and share > self._unexplained_limit):
            yield Alert(
                "medium",
                "rlhf",
                "value_explains_nothing",
                f"explained variance {1 - share:.4g}: the values are farther from the returns than "
                "any constant",
                step,
                1 - share,
                1 - self._unexplained_limit,
                {"value_loss": loss},
            )


def _loss_of_zeros(scores: Sample | None) -> float:
    """The value loss, half a mean square, of values that are all 0."""
    if scores is None or scores.std is None:
        return UNKNOWN
    square = (scores.mean**2 + scores.std**2) / 2
    return square if math.isfinite(square) else math.inf
