"""Values that are NaN or infinite; gradient norms that explode, vanish, or jump from step to step.
Pure."""

from __future__ import annotations

import math
import statistics
from collections import deque
from itertools import islice, pairwise
from typing import Any

from canary.training.anomaly.detectors.common import Watch
from canary.training.anomaly.observation import Observation

SCALING = 20
"""In float16 the gradient scale begins too high and halves until gradients fit: this many
non-finite norms in succession are ignored."""


class FiniteDetector(Watch):
    """Checks the raw loss, the gradient norm, KL and reward."""

    def __init__(self, scaled_gradients: bool = False) -> None:
        super().__init__()
        self._patience = SCALING if scaled_gradients else 0
        self._bad_norms = 0

    def check(self, observation: Observation) -> None:
        """Check one step."""
        self._now += 1
        norm = observation.grad_norm
        reward = observation.rewards.mean if observation.rewards is not None else None
        # `kl_blowup` reports an infinite KL.
        kl = None if observation.kl == math.inf else observation.kl
        for name, value in (("loss", observation.loss), ("kl", kl), ("reward", reward)):
            if value is not None and not math.isfinite(value):
                self.report(f"{name}_not_finite", f"the {name} is {value}", value, None)
        if norm is None:
            return
        self._bad_norms = 0 if math.isfinite(norm) else self._bad_norms + 1
        if self._bad_norms > self._patience:
            words = f"the gradient norm is {norm}"
            self.report("gradient_not_finite", words, norm, None, steps=self._bad_norms)


EXPLOSION = 10.0
VANISHING = 1e-6
KNOWN = 5
"""Norms after which the run's usual level is known."""
FIRST = 1000.0
"""Limit for the first norm of a run, in multiples of the threshold. The usual level is not known
yet: losses that are sums or squares, such as IPO's, have norms of hundreds."""
BEYOND = 1.5
"""An explosion is at least this many times the window's 90th percentile: the norms of policies have
long tails, and a median near zero if most groups have equal rewards."""
TAIL = (4.0, 50.0)
"""Norms may have a long tail: then an explosion is above the median by this power of the ratio of
the 90th percentile to it. Those are 5 standard deviations of a log-normal norm. The second number
is the most."""
LOW = 8
"""Vanished norms in succession that raise an alert, in a run that had larger ones."""
CHANGES = 30
EVERY = 5
"""The window is checked once per this many steps: it hardly changes in between."""
JUMPY = 10.0
"""Norms are unstable if they change by more than this factor in half of the steps."""


class GradientDetector(Watch):
    """Compares norms with the run's usual level, or with the thresholds that the user sets.

    Args:
        explosion_threshold: a norm above it has exploded. By default it must be above 10.0 and
            above that many times the median of the last `window_size` norms.
        vanishing_threshold: a norm below it has vanished. By default 1e-6, in `LOW` steps running.
        window_size: norms that give the usual level.
    """

    def __init__(
        self, explosion_threshold: float | None, vanishing_threshold: float | None, window_size: int
    ) -> None:
        super().__init__()
        self._explosion = explosion_threshold
        self._vanishing = vanishing_threshold or VANISHING
        self._patience = LOW if vanishing_threshold is None else 1
        self._norms: deque[float] = deque(maxlen=window_size)
        self._without_signal: deque[float] = deque(maxlen=window_size)
        self._seen = self._low = 0

    def check(self, observation: Observation) -> None:
        """Check one norm; `FiniteDetector` handles a norm that is not finite."""
        norm = observation.grad_norm
        if norm is None or not math.isfinite(norm):
            return
        self._now += 1
        if norm > (self._explosion or EXPLOSION):
            self._exploded(norm)
        if observation.no_signal:
            # Groups of equal rewards have little gradient or none, and not what is usual.
            if norm >= self._vanishing:
                self._without_signal.append(norm)
            return
        # The first norm may be near 0 because the weights start at 0.
        self._low = self._low + 1 if norm < self._vanishing else 0
        if self._low >= self._patience or self._low == self._seen + 1 > 1:
            words = f"the model learns almost nothing: gradient norm {norm:.4g} is below "
            words += f"{self._vanishing:g}"
            self.report("gradient_vanishing", words, norm, self._vanishing)
        self._norms.append(norm)
        self._seen += 1
        if len(self._norms) > CHANGES and self._seen % EVERY == 0:
            self._varies()

    def _exploded(self, norm: float) -> None:
        norms = self._norms if len(self._norms) >= KNOWN else self._norms + self._without_signal
        limit = self._explosion or _limit(norms)
        if norm > limit:
            usual = statistics.median(norms) if norms else None
            compared = "" if usual is None else f"; the median of recent steps is {usual:.4g}"
            words = f"gradient norm {norm:.4g} is above the limit {limit:.4g}{compared}"
            more: dict[str, Any] = {"median": usual, "norms": len(norms)}
            self.report("gradient_explosion", words, norm, limit, **more)

    def _varies(self) -> None:
        recent = islice(self._norms, len(self._norms) - CHANGES - 1, None)
        logs = [math.log(norm) for norm in recent if norm >= self._vanishing]
        if len(logs) <= CHANGES // 2:
            return
        factor = math.exp(statistics.median(abs(b - a) for a, b in pairwise(logs)))
        if factor > JUMPY:
            words = f"gradient norms are unstable: in half of the last {CHANGES} steps they "
            words += f"changed by a factor of at least {factor:.3g}"
            self.report("gradient_variance", words, factor, JUMPY)


def _limit(norms: deque[float]) -> float:
    """Return the default limit of a norm, from the run's norms so far."""
    if not norms:
        return FIRST * EXPLOSION
    if len(norms) < min(KNOWN, norms.maxlen or KNOWN):
        return EXPLOSION * max(1.0, *norms)
    ordered = sorted(norms)
    usual, high = ordered[len(ordered) // 2], ordered[int(0.9 * len(ordered))]
    power, most = TAIL
    times = min(most, (high / usual) ** power) if usual > 0 else EXPLOSION
    return max(EXPLOSION, max(EXPLOSION, times) * usual, BEYOND * high)
