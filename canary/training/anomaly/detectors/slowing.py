"""A training that slows down: more seconds per step for the same work. Pure."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterator

from canary.record.alert import Alert
from canary.record.slowing import more_work
from canary.training.anomaly.detectors.common import Episodes, alert
from canary.training.anomaly.detectors.series import spread_of
from canary.training.anomaly.observation import Observation

WARMUP = 3
"""Skipped steps, which compile, allocate and fill caches."""
EARLY = 50
"""Steps at most that give the usual step time."""
LEAST_EARLY = 10
RECENT = 12
SLOWER = 1.75
"""Recent over early step time that raises an alert. Caches, clocks and cores shared with other work
can make it 1.4."""
SURE = 4.0
"""The rise of log step time, in standard deviations of one early step."""
LEAST_SPREAD = 0.03
APART, HIGH = 0.8, 0.8
"""At least the share APART of the recent steps is longer than the share HIGH of the early ones."""


class SlowingDetector:
    """Compares the last steps with the first ones, in the training's seconds (`own_s`)."""

    def __init__(self) -> None:
        self._skipped = 0
        self._early: list[tuple[float, float | None]] = []
        self._before = 0.0
        self._recent: deque[tuple[float, float | None]] = deque(maxlen=RECENT)
        self._episodes = Episodes()

    def observe(self, observation: Observation) -> Iterator[Alert]:
        """Check the time of one step."""
        if observation.own_s is None or not observation.own_s > 0:
            return
        if self._skipped < WARMUP:
            self._skipped += 1
            return
        self._episodes.next()
        if len(self._recent) == RECENT and len(self._early) < EARLY:
            self._early.append(self._recent[0])
            self._before = statistics.median(seconds for seconds, _ in self._early)
        self._recent.append((observation.own_s, observation.tokens))
        if len(self._early) < LEAST_EARLY:
            return
        before, now = self._before, statistics.median(seconds for seconds, _ in self._recent)
        if now <= SLOWER * before:
            return  # nearly always: skip the costly test
        early, late = ([seconds for seconds, _ in part] for part in (self._early, self._recent))
        limit = SLOWER * before * self._work()
        if self._episodes.is_new("slower", now > limit and _surely(early, late)):
            words = f"training slows down: a step takes {1e3 * now:.4g} ms, up from "
            words += f"{1e3 * before:.4g} ms at the start"
            yield alert("slowing_down", observation.step, words, now, limit, before_s=before)

    def _work(self) -> float:
        parts = (self._early, self._recent)
        return more_work(*([n for _, n in part if n is not None] for part in parts))


def _surely(early: list[float], late: list[float]) -> bool:
    """Return whether the late steps are longer as a whole, not because of a few long ones."""
    logs = [[math.log(seconds) for seconds in part] for part in (early, late)]
    rise = statistics.median(logs[1]) - statistics.median(logs[0])
    high = sorted(early)[int(HIGH * len(early))]
    longer = sum(seconds > high for seconds in late)
    return rise > SURE * max(LEAST_SPREAD, spread_of(logs[0])) and longer >= APART * len(late)
