"""A loss far above those before it, with the hash of its batch. Pure."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterator
from itertools import pairwise

from canary.record.alert import Alert
from canary.training.anomaly.detectors.convergence import NOTHING
from canary.training.anomaly.detectors.episodes import Episodes
from canary.training.anomaly.detectors.series import spread_of
from canary.training.anomaly.observation import Observation

WINDOW = 50
KNOWN = 15
NEIGHBOURS = 5
UNUSUAL = 10.0
"""A spike is above the previous losses by this many standard deviations of step changes ..."""
TIMES = 2.0
"""... and at least this many times as high."""


class LossSpikeDetector:
    """Checks losses above zero: a policy's losses cancel to 0, so that they have no level."""

    def __init__(self) -> None:
        self._losses: deque[float] = deque(maxlen=WINDOW)
        self._episodes = Episodes()

    def observe(self, observation: Observation) -> Iterator[Alert]:
        """Check one loss."""
        loss = observation.loss
        if loss is None or not math.isfinite(loss) or observation.surrogate:
            return
        self._episodes.next()
        known = list(self._losses)
        self._losses.append(loss)
        if len(known) < KNOWN:
            return
        level = statistics.median(known[-NEIGHBOURS:])
        if loss <= TIMES * level or min(known) <= NOTHING:
            return
        limit = max(TIMES * level, level + UNUSUAL * spread_of([b - a for a, b in pairwise(known)]))
        if self._episodes.is_new("spike", loss > limit):
            hashes = observation.batch_hash() if observation.batch_hash is not None else None
            batch = f", batch {str(hashes[0])[:12]}" if hashes else ""
            yield Alert(
                "medium",
                "convergence",
                "loss_spike",
                f"the loss jumped from about {level:.4g} to {loss:.4g}{batch}",
                observation.step,
                loss,
                limit,
                {"median": level, "batch_sha256": hashes},
            )
