"""A training that slows down as it goes: more seconds a step for the same work. Pure."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterator

from canary.record.alert import Alert
from canary.record.slowing import more_work
from canary.training.anomaly.detectors.episodes import Episodes
from canary.training.anomaly.detectors.series import spread_of
from canary.training.anomaly.observation import Observation

WARMUP = 3
"""Steps that compile, allocate and fill caches."""
EARLY = 50
"""Steps at most that tell how long one takes."""
LEAST_EARLY = 10
RECENT = 12
SLOWER = 1.75
"""A step that takes so many times as long, of the training's own seconds: caches, clocks and cores
that are shared with other work make up to 1.4 of it."""
SURE = 4.0
"""Standard deviations of one early step, of the logarithms and from their median."""
LEAST_SPREAD = 0.03
APART, HIGH = 0.8, 0.8
"""So many of the recent steps are longer than so many of the early ones."""


class SlowingDetector:
    """The last steps against the first ones, in seconds that are the training's own."""

    def __init__(self) -> None:
        self._skipped = 0
        self._early: list[tuple[float, float | None]] = []
        self._before = 0.0
        self._recent: deque[tuple[float, float | None]] = deque(maxlen=RECENT)
        self._episodes = Episodes()

    def observe(self, observation: Observation) -> Iterator[Alert]:
        """Looks at one step's time."""
        if observation.own_s is None or not observation.own_s > 0:
            return
        if self._skipped < WARMUP:
            self._skipped += 1
            return
        self._episodes.next()
        if len(self._recent) == RECENT and len(self._early) < EARLY:
            self._early.append(self._recent[0])
            self._before = statistics.median(own for own, _ in self._early)
        self._recent.append((observation.own_s, observation.tokens))
        if len(self._early) < LEAST_EARLY:
            return
        before, now = self._before, statistics.median(own for own, _ in self._recent)
        if now <= SLOWER * before:
            return  # as nearly always, and cheap
        early, late = ([own for own, _ in part] for part in (self._early, self._recent))
        limit = SLOWER * before * self._work()
        if self._episodes.begins("slower", now > limit and _surely(early, late)):
            yield Alert(
                "medium",
                "performance",
                "slowing_down",
                f"a step takes {1e3 * now:.4g} ms, and took {1e3 * before:.4g} ms at the start: "
                "the training slows down",
                observation.step,
                now,
                limit,
                {"before_s": before},
            )

    def _work(self) -> float:
        parts = (self._early, self._recent)
        return more_work(*([n for _, n in part if n is not None] for part in parts))


def _surely(early: list[float], late: list[float]) -> bool:
    """Whether the late steps are another level than the early ones, and not a few among them."""
    logs = [[math.log(own) for own in part] for part in (early, late)]
    rise = statistics.median(logs[1]) - statistics.median(logs[0])
    high = sorted(early)[int(HIGH * len(early))]
    longer = sum(own > high for own in late)
    return rise > SURE * max(LEAST_SPREAD, spread_of(logs[0])) and longer >= APART * len(late)
