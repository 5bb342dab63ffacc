"""The weight of the KL penalty: fixed, or adapted so that the KL stays near a target."""

from __future__ import annotations

from dataclasses import dataclass

MOST = 0.2
"""Largest relative error that one adaptation uses; larger errors are clipped."""


@dataclass
class KLCoefficient:
    """`value` is the weight for the next rollout. Without a `target` it never changes."""

    value: float
    target: float | None = None
    horizon: int = 10_000

    def update(self, kl: float, completions: int) -> None:
        """Apply proportional control on a log scale (Ziegler et al. 2019, section 2.2).

        `kl`: mean KL per completion of the last rollout, in nats; `completions`: their number.
        """
        if self.target is None:
            return
        error = max(-MOST, min(MOST, kl / self.target - 1))
        self.value *= 1 + error * completions / self.horizon
