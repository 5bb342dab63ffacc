"""A loss that jumps (with its batch's hash), diverges over many steps, or stops moving. Pure."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterator
from itertools import pairwise

from canary.record.alert import Alert
from canary.training.anomaly.detectors.episodes import Episodes
from canary.training.anomaly.detectors.series import spread_of
from canary.training.anomaly.observation import Observation

NOTHING = 1e-6
"""Smaller losses cancel to zero, as a policy's do: their size means nothing."""
TRAINING = 0.1
"""Below this share of the peak rate a loss need not move: a schedule begins or ends."""
BLOCK = 5
"""Steps averaged into one point of the long history."""
MOST_BLOCKS = 128
"""At this many blocks, neighbours are merged and blocks become twice as long."""
FIRST_BLOCKS = 10
RISE = 2.5
"""A loss diverges at this many times its level in the best quarter of the run so far ..."""
OF_START = 0.25
"""... and at least this share of its first level: a loss near zero doubles by chance."""
RECENT = 10
FIRST = 5
EARLY_STEPS = 10
EARLY_RISE = 4.0
"""With a short history, a loss diverges if each of the last five is this many times the first
five's largest ..."""
LEVEL = 1e-3
"""... and the first five are above this: a loss that begins at zero, as a penalty, has no level."""


class ConvergenceDetector:
    """Reports divergence, and plateaus: at a rate that trains, the last `plateau_window` losses lie
    within a band of `plateau_threshold` times their mean."""

    def __init__(self, plateau_threshold: float = 0.001, plateau_window: int = 50) -> None:
        self._threshold = plateau_threshold
        self._losses: deque[float] = deque(maxlen=plateau_window)
        self._rates: deque[float] = deque(maxlen=plateau_window)
        self._peak = 0.0
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._first: list[float] = []
        self._seen = 0
        self._history = _Blocks()
        self._episodes = Episodes()

    def observe(self, observation: Observation) -> Iterator[Alert]:
        """Check one loss."""
        if observation.learning_rates:
            rate = max(observation.learning_rates)
            self._rates.append(rate)
            peaks = [peak for peak in observation.peak_rates if peak is not None]
            self._peak = max(self._peak, rate, *peaks)
        loss = observation.loss
        if loss is None or not math.isfinite(loss):
            return
        self._episodes.next()
        self._losses.append(loss)
        yield from self._plateau(observation.step)
        if not observation.surrogate:
            # The loss of online RL has no level: it begins at 0, and its penalty grows.
            yield from self._divergence(observation.step, loss, observation.rewards is None)

    def _plateau(self, step: int) -> Iterator[Alert]:
        window = self._losses.maxlen or 1
        if len(self._losses) < window or window < 2:
            return
        highest, lowest = max(self._losses), min(self._losses)
        if highest - lowest > self._threshold * max(abs(highest), abs(lowest)):
            return
        level = abs(statistics.fmean(self._losses))
        if level < NOTHING:
            return
        width = (highest - lowest) / level
        if self._episodes.is_new("plateau", width < self._threshold and self._trains()):
            yield Alert(
                "medium",
                "convergence",
                "convergence_plateau",
                f"the loss has stopped moving: the last {window} values differ by at most "
                f"{100 * width:.2g}%, near {level:.4g}",
                step,
                width,
                self._threshold,
                {"mean": level},
            )

    def _trains(self) -> bool:
        """Return whether the rate was high enough for the loss to move, and did not rise."""
        if not self._rates:
            return True
        rising = self._rates[-1] > self._rates[0]
        return not rising and (self._peak == 0.0 or min(self._rates) >= TRAINING * self._peak)

    def _divergence(self, step: int, loss: float, has_level: bool) -> Iterator[Alert]:
        if len(self._recent) == RECENT:
            self._history.add(self._recent[0])
        self._recent.append(loss)
        self._seen += 1
        if len(self._first) < FIRST:
            self._first.append(loss)
        blocks = self._history.means
        if len(blocks) < FIRST_BLOCKS and has_level and self._seen >= EARLY_STEPS:
            yield from self._early_divergence(step)
        if len(blocks) < FIRST_BLOCKS or min(blocks[0], min(self._recent)) <= NOTHING:
            return
        now = statistics.fmean(self._recent)
        usual = self._history.best_quarter
        limit = max(RISE * usual, OF_START * blocks[0])
        # The median must be above too: one spike is not divergence.
        above = usual > 0 and min(now, statistics.median(self._recent)) > limit
        if self._episodes.is_new("divergence", above):
            yield Alert(
                "high",
                "convergence",
                "convergence_divergence",
                f"the loss diverges: {now:.4g} over the last {RECENT} steps, up from {usual:.4g}",
                step,
                now,
                limit,
                {"best_quarter": usual, "start": blocks[0]},
            )

    def _early_divergence(self, step: int) -> Iterator[Alert]:
        start, last = max(self._first), list(self._recent)[-FIRST:]
        limit = EARLY_RISE * start
        if self._episodes.is_new("divergence", min(self._first) > LEVEL and min(last) > limit):
            yield Alert(
                "high",
                "convergence",
                "convergence_divergence",
                f"the loss diverges: the last {FIRST} losses are at least {min(last):.4g}, the "
                f"first {FIRST} were at most {start:.4g}",
                step,
                min(last),
                limit,
                {"start": start},
            )


class _Blocks:
    """Mean losses of the whole run, in bounded memory."""

    def __init__(self) -> None:
        self.means: list[float] = []
        self.best_quarter = 0.0
        self._length = BLOCK
        self._open: list[float] = []

    def add(self, value: float) -> None:
        self._open.append(value)
        if len(self._open) < self._length:
            return
        self.means.append(statistics.fmean(self._open))
        self._open.clear()
        if len(self.means) >= MOST_BLOCKS:
            pairs = zip(self.means[::2], self.means[1::2], strict=True)
            self.means = [(a + b) / 2 for a, b in pairs]
            self._length *= 2
        if len(self.means) > 1:
            self.best_quarter = statistics.quantiles(self.means, n=4)[0]


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
