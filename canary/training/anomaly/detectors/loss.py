"""A loss that jumps, diverges over many steps, or stops moving. Pure."""

from __future__ import annotations

import math
import statistics
from collections import deque
from itertools import pairwise

from canary.training.anomaly.detectors.common import Watch, split, spread_of, trend_of
from canary.training.anomaly.observation import Observation

NOTHING = 1e-6
"""Smaller losses cancel to zero, as a policy's do: their size means nothing."""
TRAINING = 0.1
"""Below this share of the peak rate a loss need not move: a schedule begins or ends."""
BLOCK = 5
"""Steps averaged into one point of the long history."""
MOST_BLOCKS = 128
"""At this many blocks, neighbours are merged and blocks become twice as long."""
STILL = 0.025
"""A loss stands still if it surely fell by less than this. The last two thirds count, or the last
quarter, of the steps at a rate that trains: a healthy loss falls ever more slowly."""
STILL_STEPS = 150
"""Fewer steps do not show that a loss stands still."""
PERCENT_99 = 2.33
"""Standard errors: one-sided 99%."""
FALLS = 2.0
"""A loss that falls by this many standard errors still learns, however slowly."""
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
CLIMB = 1.5
"""A loss diverges too if it climbs steadily by this factor ..."""
CLIMB_STEPS = 40
"""... within so many steps ..."""
LEAST_CLIMB = 20
CLIMBS = 8.0
"""... by this many standard errors of its trend, and of the trend before. New data raise a loss at
once, not steadily."""
KEPT = 100


WINDOW = 50
KNOWN = 15
NEIGHBOURS = 5
UNUSUAL = 10.0
"""A spike is above the previous losses by this many standard deviations of step changes ..."""
TIMES = 2.0
"""... and at least this many times as high."""


class ConvergenceDetector(Watch):
    """Reports divergence, plateaus and spikes. A plateau: at a rate that trains, the last
    `plateau_window` losses lie within a band of `plateau_threshold` times their mean; or, with
    noise, their trend over most of the run is surely none. A policy's losses cancel to 0, so that
    they have no level: of them only plateaus are reported."""

    def __init__(self, plateau_threshold: float, plateau_window: int) -> None:
        super().__init__()
        self._threshold = plateau_threshold
        self._least_change = max(plateau_threshold, min(STILL, STILL / 0.001 * plateau_threshold))
        self._losses: deque[float] = deque(maxlen=plateau_window)
        self._rates: deque[float] = deque(maxlen=plateau_window)
        self._peak = 0.0
        self._recent: deque[float] = deque(maxlen=KEPT)
        self._first: list[float] = []
        self._history = _Blocks()
        self._trained = _Blocks()
        self._blocks = 0

    def check(self, observation: Observation) -> None:
        """Check one loss."""
        if observation.learning_rates:
            rate = max(observation.learning_rates)
            peaks = [peak for peak in observation.peak_rates if peak is not None]
            self._peak = max(self._peak, rate, *peaks)
            if rate < TRAINING * self._peak or (self._rates and rate > self._rates[-1]):
                self._trained = _Blocks()
            self._rates.append(rate)
        loss = observation.loss
        if loss is None or not math.isfinite(loss):
            return
        self._now += 1
        self._losses.append(loss)
        self._flat()
        if observation.surrogate:
            return
        # The loss of online RL has no level: it begins at 0, and its penalty grows.
        has_level = observation.rewards is None
        if has_level and self._trained.add(loss):
            self._blocks += 1
            means = self._trained.means
            for part in (means[len(means) // 3 :], means[3 * len(means) // 4 :]):
                self._still(part)
        known = list(self._recent)[-WINDOW:]
        self._divergence(loss, has_level)
        if len(known) >= KNOWN and min(known) > NOTHING:
            self._spike(known, loss)

    def _flat(self) -> None:
        window = self._losses.maxlen or 1
        if len(self._losses) < window or window < 2:
            return
        highest, lowest = max(self._losses), min(self._losses)
        level = abs(statistics.fmean(self._losses))
        if level < NOTHING or highest - lowest >= self._threshold * level:
            return
        # Whether the rate was high enough for the loss to move, and did not rise.
        rates = self._rates or (0.0,)
        if rates[-1] <= rates[0] and min(rates) >= TRAINING * self._peak:
            width = (highest - lowest) / level
            words = f"the loss has stopped moving: the last {window} values differ by at most "
            words += f"{100 * width:.2g}%, near {level:.4g}"
            self.report("convergence_plateau", words, width, self._threshold, mean=level)

    def _still(self, blocks: list[float]) -> None:
        steps = len(blocks) * self._trained.length
        if steps < STILL_STEPS or min(blocks) <= NOTHING:
            return
        level = statistics.fmean(blocks)
        change, error = (each / level for each in trend_of(blocks))
        most = abs(change) + PERCENT_99 * error
        if most < self._least_change and change > -FALLS * error:
            words = f"the loss has stopped moving: over the last {steps} steps it changed by "
            words += f"{100 * change:+.2g}% (at most {100 * most:.2g}%), near {level:.4g}"
            least, now = self._least_change, self._blocks
            self.report("convergence_plateau", words, most, least, now=now, mean=level)

    def _divergence(self, loss: float, has_level: bool) -> None:
        if len(self._recent) >= RECENT:
            self._history.add(self._recent[-RECENT])
        self._recent.append(loss)
        if len(self._first) < FIRST:
            self._first.append(loss)
        blocks = self._history.means
        if has_level and min(self._first) > LEVEL and len(self._recent) >= EARLY_STEPS:
            if len(blocks) < FIRST_BLOCKS:
                start, now = max(self._first), min(list(self._recent)[-FIRST:])
                words = f"{FIRST} steps at least, the first were at most {start:.4g}"
                self._diverges(now > EARLY_RISE * start, now, EARLY_RISE * start, words)
            self._climb()
        last = list(self._recent)[-RECENT:]
        if len(blocks) < FIRST_BLOCKS or min(blocks[0], min(last)) <= NOTHING:
            return
        now, usual = statistics.fmean(last), self._history.best_quarter
        limit = max(RISE * usual, OF_START * blocks[0])
        # The median must be above too: one spike is not divergence.
        above = usual > 0 and min(now, statistics.median(last)) > limit
        self._diverges(above, now, limit, f"{RECENT} steps, up from {usual:.4g}")

    def _climb(self) -> None:
        before, losses = split(self._recent, CLIMB_STEPS)
        start, now = statistics.fmean(losses[:FIRST]), statistics.fmean(losses[-FIRST:])
        floor = OF_START * statistics.fmean(self._first)
        if len(losses) < LEAST_CLIMB or now < max(floor, start) or min(losses) <= NOTHING:
            return
        rise, error = trend_of([math.log(loss) for loss in losses])
        if len(before) >= LEAST_CLIMB and min(before) > NOTHING:
            error = max(error, trend_of([math.log(loss) for loss in before])[1])
        above = rise > math.log(CLIMB) and rise > CLIMBS * error
        words = f"{FIRST} steps, after a steady rise from {start:.4g} in {len(losses)} steps"
        self._diverges(above, now, CLIMB * start, words)

    def _diverges(self, above: bool, now: float, limit: float, since: str) -> None:
        if above:
            words = f"the loss diverges: {now:.4g} over the last {since}"
            self.report("convergence_divergence", words, now, limit)

    def _spike(self, known: list[float], loss: float) -> None:
        level = statistics.median(known[-NEIGHBOURS:])
        if loss <= TIMES * level:
            return
        limit = max(TIMES * level, level + UNUSUAL * spread_of([b - a for a, b in pairwise(known)]))
        if loss > limit:
            words = f"the loss jumped from about {level:.4g} to {loss:.4g}"
            self.report("loss_spike", words, loss, limit, median=level)


class _Blocks:
    """Mean losses of the whole run, in bounded memory."""

    def __init__(self) -> None:
        self.means: list[float] = []
        self.best_quarter = 0.0
        self.length = BLOCK
        self._open: list[float] = []

    def add(self, value: float) -> bool:
        """Add a loss. Return whether it completed a block."""
        self._open.append(value)
        if len(self._open) < self.length:
            return False
        self.means.append(statistics.fmean(self._open))
        self._open.clear()
        if len(self.means) >= MOST_BLOCKS:
            pairs = zip(self.means[::2], self.means[1::2], strict=True)
            self.means = [(a + b) / 2 for a, b in pairs]
            self.length *= 2
        if len(self.means) > 1:
            self.best_quarter = statistics.quantiles(self.means, n=4)[0]
        return True
