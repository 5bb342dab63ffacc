"""Losses and gradients that are NaN or infinite; KL and rewards that are NaN. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from canary.record.alert import Alert
from canary.training.anomaly.detectors.episodes import Episodes
from canary.training.anomaly.observation import Observation

SCALING = 20
"""In float16 the gradient scale begins too high and halves until gradients fit: this many
non-finite norms in succession are ignored."""


class FiniteDetector:
    """Checks the raw loss of the step and of each micro-batch, the gradient norm, KL and reward."""

    def __init__(self, scaled_gradients: bool = False) -> None:
        self._patience = SCALING if scaled_gradients else 0
        self._bad_norms = 0
        self._episodes = Episodes()

    def observe(self, observation: Observation) -> Iterator[Alert]:
        """Check one step."""
        self._episodes.next()
        losses = [observation.loss, *observation.micro_losses]
        bad = next((loss for loss in losses if loss is not None and not math.isfinite(loss)), None)
        if self._episodes.is_new("loss", bad is not None):
            hashes = observation.batch_hash() if observation.batch_hash is not None else None
            yield Alert(
                "critical",
                "numerics",
                "loss_not_finite",
                f"the loss is {bad}",
                observation.step,
                bad,
                None,
                {"micro_losses": list(observation.micro_losses), "batch_sha256": hashes},
            )
        yield from self._signals(observation)
        norm = observation.grad_norm
        if norm is None:
            return
        self._bad_norms = 0 if math.isfinite(norm) else self._bad_norms + 1
        if self._episodes.is_new("gradient", self._bad_norms > self._patience):
            yield Alert(
                "critical",
                "numerics",
                "gradient_not_finite",
                f"the gradient norm is {norm}",
                observation.step,
                norm,
                None,
                {"steps": self._bad_norms},
            )

    def _signals(self, observation: Observation) -> Iterator[Alert]:
        """Check the KL and the reward of online training for NaN."""
        reward = observation.rewards.mean if observation.rewards is not None else None
        for name, value in (("kl", observation.kl), ("reward", reward)):
            bad = value is not None and math.isnan(value)
            if self._episodes.is_new(name, bad):
                yield Alert(
                    "high",
                    "numerics",
                    f"{name}_not_finite",
                    f"the {name} is {value}",
                    observation.step,
                    value,
                )
