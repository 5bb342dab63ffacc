"""Proximal policy optimization (PPO) with the canary's training loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canary.protocol.spec import WorkloadSpec

if TYPE_CHECKING:
    from canary.training.trainers.ppo.trainer import PPOTrainer


def build(spec: WorkloadSpec) -> PPOTrainer:
    """Return a PPOTrainer, not yet started."""
    # Imported here because formulas and settings of this package are used without torch models.
    # A module called `build` would replace this function when it is imported.
    from canary.training.trainers.ppo.building import build_ppo

    return build_ppo(spec)
