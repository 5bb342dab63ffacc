"""The weight of the penalty on the KL: fixed, or adapted so that the KL stays near a target."""

from __future__ import annotations

from dataclasses import dataclass

MOST = 0.2
"""The largest part of the target's distance that one adaptation answers to."""


@dataclass
class KLCoefficient:
    """`value` is the weight of the next rollout. Without a `target` it stays as it is."""

    value: float
    target: float | None = None
    horizon: int = 10_000

    def update(self, kl: float, completions: int) -> None:
        """Proportional control on a log scale (Ziegler et al. 2019, section 2.2).

        `kl`: mean KL of a completion in the last rollout, nats; `completions`: how many it had.
        """
        if self.target is None:
            return
        error = max(-MOST, min(MOST, kl / self.target - 1))
        self.value *= 1 + error * completions / self.horizon
