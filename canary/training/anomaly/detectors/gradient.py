"""Gradient norms that explode, vanish, or jump from step to step. Pure."""

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
"""Norms after which the run's usual level is known."""
FIRST = 1000.0
"""Limit for the first norm of a run, in multiples of the threshold. The usual level is not known
yet: losses that are sums or squares, such as IPO's, have norms of hundreds."""
BEYOND = 1.5
"""An explosion is at least this many times the window's 90th percentile: the norms of policies have
long tails, and a median near zero if most groups have equal rewards."""
LOW = 8
"""Vanished norms in succession that raise an alert, in a run that had larger ones."""
CHANGES = 30
EVERY = 5
"""The window is checked once per this many steps: it hardly changes in between."""
JUMPY = 10.0
"""Norms are unstable if they change by more than this factor in half of the steps."""


class GradientDetector:
    """Compares norms with the run's usual level. An explosion is above `explosion_threshold`, and
    above that many times the median of the last `window_size` norms."""

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
        """Check one norm; `FiniteDetector` handles a norm that is not finite."""
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
        if self._episodes.is_new("explosion", norm > limit):
            usual = statistics.median(self._norms) if self._norms else None
            compared = "" if usual is None else f"; the median of recent steps is {usual:.4g}"
            yield Alert(
                "critical",
                "gradient",
                "gradient_explosion",
                f"gradient norm {norm:.4g} is above the limit {limit:.4g}{compared}",
                step,
                norm,
                limit,
                {"median": usual, "norms": len(self._norms)},
            )

    def _vanished(self, step: int, norm: float) -> Iterator[Alert]:
        # Groups of equal rewards have no gradient, by chance several times in succession. The
        # first norm may be near 0 because the weights start at 0.
        self._low = self._low + 1 if norm < self._vanishing else 0
        low = self._low >= LOW or self._low == self._seen + 1 > 1
        if self._episodes.is_new("vanishing", low):
            yield Alert(
                "high",
                "gradient",
                "gradient_vanishing",
                f"the model learns almost nothing: gradient norm {norm:.4g} is below "
                f"{self._vanishing:g}",
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
        if self._episodes.is_new("variance", factor > JUMPY):
            yield Alert(
                "medium",
                "gradient",
                "gradient_variance",
                f"gradient norms are unstable: in half of the last {CHANGES} steps they changed "
                f"by a factor of at least {factor:.3g}",
                step,
                factor,
                JUMPY,
            )
