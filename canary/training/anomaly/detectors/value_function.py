"""A value function that gets worse, which clipped gradient norms do not show. Pure."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterator

from canary.record.alert import Alert
from canary.training.anomaly.detectors.common import Episodes, alert
from canary.training.anomaly.detectors.series import split
from canary.training.anomaly.observation import Observation, Sample

WINDOW = 100
LAST = 5
"""Steps whose median is the present level, or the first level."""
KNOWN = 10
UNKNOWN = 1.0
"""The loss of values of 0 if the standard deviation of the scores is unknown."""


class ValueDetector:
    """Checks the value loss. It counts only while the values are worse than values of 0: if scores
    hardly differ, or the first ones come late, a ratio of losses means nothing.

    Args:
        loss_limit: the loss blew up above this many times the larger of its first and usual level.
    """

    def __init__(self, loss_limit: float = 10.0) -> None:
        self._loss_limit = loss_limit
        self._losses: deque[float] = deque(maxlen=WINDOW)
        self._first: list[float] = []
        self._nothing: deque[float] = deque(maxlen=LAST)
        self._episodes = Episodes()

    def observe(self, observation: Observation) -> Iterator[Alert]:
        """Check one step; a value loss that is not finite is skipped."""
        loss = observation.value_loss
        if loss is None or not math.isfinite(loss):
            return
        self._episodes.next()
        self._losses.append(loss)
        if len(self._first) < LAST:
            self._first.append(loss)
        self._nothing.append(_loss_of_zeros(observation.rewards))
        before, last = split(self._losses, LAST)
        now, nothing = statistics.median(last), statistics.median(self._nothing)
        worse = now > nothing
        if len(self._losses) >= KNOWN:
            yield from self._blew_up(observation.step, now, before, worse)

    def _blew_up(self, step: int, now: float, before: list[float], worse: bool) -> Iterator[Alert]:
        usual = max(statistics.median(self._first), statistics.median(before))
        limit = self._loss_limit * usual
        if self._episodes.is_new("loss", worse and now > limit):
            words = f"the value function diverges: value loss {now:.4g}, up from {usual:.4g}"
            yield alert("value_loss_blowup", step, words, now, limit, before=usual)


def _loss_of_zeros(scores: Sample | None) -> float:
    """Return the value loss, half a mean square, of values that are all 0."""
    if scores is None or scores.std is None:
        return UNKNOWN
    square = (scores.mean**2 + scores.std**2) / 2
    return square if math.isfinite(square) else math.inf
