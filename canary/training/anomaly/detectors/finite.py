"""Losses and gradients that are no numbers any more. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from canary.record.alert import Alert
from canary.training.anomaly.detectors.episodes import Episodes
from canary.training.anomaly.observation import Observation

SCALING = 20
"""In float16 a gradient scaler begins too high and halves until gradients fit: so many norms in a
row are let pass."""


class FiniteDetector:
    """The loss as it was computed, of the step and of each micro-batch, and the gradient norm."""

    def __init__(self, scaled_gradients: bool = False) -> None:
        self._patience = SCALING if scaled_gradients else 0
        self._bad_norms = 0
        self._episodes = Episodes()

    def observe(self, observation: Observation) -> Iterator[Alert]:
        """Looks at one step."""
        self._episodes.next()
        losses = [observation.loss, *observation.micro_losses]
        bad = next((loss for loss in losses if loss is not None and not math.isfinite(loss)), None)
        if self._episodes.begins("loss", bad is not None):
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
        if self._episodes.begins("gradient", self._bad_norms > self._patience):
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
        """What online training is steered by: a KL or a reward that is no number."""
        reward = observation.rewards.mean if observation.rewards is not None else None
        for name, value in (("kl", observation.kl), ("reward", reward)):
            bad = value is not None and math.isnan(value)
            if self._episodes.begins(name, bad):
                yield Alert(
                    "high",
                    "numerics",
                    f"{name}_not_finite",
                    f"the {name} is {value}",
                    observation.step,
                    value,
                )
