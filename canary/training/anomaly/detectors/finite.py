"""Values that are NaN or infinite. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from canary.record.alert import Alert
from canary.training.anomaly.detectors.common import Episodes, alert
from canary.training.anomaly.observation import Observation

SCALING = 20
"""In float16 the gradient scale begins too high and halves until gradients fit: this many
non-finite norms in succession are ignored."""


class FiniteDetector:
    """Checks the raw loss, the gradient norm, KL and reward."""

    def __init__(self, scaled_gradients: bool = False) -> None:
        self._patience = SCALING if scaled_gradients else 0
        self._bad_norms = 0
        self._episodes = Episodes()

    def observe(self, observation: Observation) -> Iterator[Alert]:
        """Check one step."""
        self._episodes.next()
        step, norm = observation.step, observation.grad_norm
        reward = observation.rewards.mean if observation.rewards is not None else None
        # `kl_blowup` reports an infinite KL.
        kl = None if observation.kl == math.inf else observation.kl
        for name, value in (("loss", observation.loss), ("kl", kl), ("reward", reward)):
            if self._episodes.is_new(name, value is not None and not math.isfinite(value)):
                yield alert(f"{name}_not_finite", step, f"the {name} is {value}", value, None)
        if norm is None:
            return
        self._bad_norms = 0 if math.isfinite(norm) else self._bad_norms + 1
        if self._episodes.is_new("gradient", self._bad_norms > self._patience):
            words = f"the gradient norm is {norm}"
            yield alert("gradient_not_finite", step, words, norm, None, steps=self._bad_norms)
