"""Gradient norms: explosion, vanishing, and norms that jump from step to step. Pure."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterator
from itertools import islice, pairwise

from canary.record.alert import Alert
from canary.training.anomaly.detectors.episodes import Episodes
from canary.training.anomaly.observation import Observation

KNOWN = 5
"""Norms after which a run's own level is known."""
FIRST = 1000.0
"""Of the first norm of a run nothing is known: sums, and squares such as IPO's loss, have norms
of hundreds. So many times the threshold is an explosion whatever the loss."""
BEYOND = 1.5
"""An explosion is so many times what nine in ten of the window's norms are below: those of policies
have long tails, and a median near zero where most groups teach nothing."""
LOW = 8
"""Norms in a row that vanished, in a run that had others."""
CHANGES = 30
EVERY = 5
"""A window is looked at once in so many steps: it hardly changes in between."""
JUMPY = 10.0
"""Norms that in half of the steps change by this factor vary too much to be followed."""


class GradientDetector:
    """Against the run's own level: a norm above `explosion_threshold`, and above that many times
    the median of the last `window_size` norms."""

    def __init__(
        self,
        explosion_threshold: float = 10.0,
        vanishing_threshold: float = 1e-6,
        window_size: int = 100,
    ) -> None:
        self._explosion = explosion_threshold
        self._vanishing = vanishing_threshold
        self._norms: deque[float] = deque(maxlen=window_size)
        self._seen = 0
        self._low = 0
        self._episodes = Episodes()

    def observe(self, observation: Observation) -> Iterator[Alert]:
        """Looks at one norm; one that is not finite is another detector's matter."""
        norm = observation.grad_norm
        if norm is None or not math.isfinite(norm):
            return
        self._episodes.next()
        if norm > self._explosion:
            yield from self._exploded(observation.step, norm)
        if not observation.no_signal:
            yield from self._vanished(observation.step, norm)
            self._norms.append(norm)
            self._seen += 1
            yield from self._varies(observation.step)

    def _limit(self) -> float:
        if not self._norms:
            return FIRST * self._explosion
        if len(self._norms) < min(KNOWN, self._norms.maxlen or KNOWN):
            return self._explosion * max(1.0, *self._norms)
        ordered = sorted(self._norms)
        usual = self._explosion * ordered[len(ordered) // 2]
        return max(self._explosion, usual, BEYOND * ordered[int(0.9 * len(ordered))])

    def _exploded(self, step: int, norm: float) -> Iterator[Alert]:
        limit = self._limit()
        if self._episodes.begins("explosion", norm > limit):
            usual = statistics.median(self._norms) if self._norms else None
            of = "" if usual is None else f"; {usual:.4g} is usual in this run"
            yield Alert(
                "critical",
                "gradient",
                "gradient_explosion",
                f"gradient norm {norm:.4g} is above {limit:.4g}{of}",
                step,
                norm,
                limit,
                {"median": usual, "norms": len(self._norms)},
            )

    def _vanished(self, step: int, norm: float) -> Iterator[Alert]:
        # Groups of equal rewards have no gradient, some in a row by chance; and a first norm may be
        # that of a start from 0.
        self._low = self._low + 1 if norm < self._vanishing else 0
        low = self._low >= LOW or self._low == self._seen + 1 > 1
        if self._episodes.begins("vanishing", low):
            yield Alert(
                "high",
                "gradient",
                "gradient_vanishing",
                f"gradient norm {norm:.4g} is below {self._vanishing:g}: nothing is learned",
                step,
                norm,
                self._vanishing,
            )

    def _varies(self, step: int) -> Iterator[Alert]:
        if len(self._norms) <= CHANGES or self._seen % EVERY:
            return
        recent = islice(self._norms, len(self._norms) - CHANGES - 1, None)
        logs = [math.log(norm) for norm in recent if norm >= self._vanishing]
        if len(logs) <= CHANGES // 2:
            return
        factor = math.exp(statistics.median(abs(b - a) for a, b in pairwise(logs)))
        if self._episodes.begins("variance", factor > JUMPY):
            yield Alert(
                "medium",
                "gradient",
                "gradient_variance",
                f"gradient norms change by a factor of {factor:.3g} from step to step, in half of "
                f"the last {CHANGES} steps",
                step,
                factor,
                JUMPY,
            )
