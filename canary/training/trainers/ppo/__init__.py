"""Proximal policy optimization (PPO) with the canary's training loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canary.protocol.spec import WorkloadSpec

if TYPE_CHECKING:
    from canary.training.trainers.ppo.trainer import PPOTrainer


def build(spec: WorkloadSpec) -> PPOTrainer:
    """Return a PPOTrainer, not yet started."""
    # Imported here because other modules use the formulas and settings without the rest. A module
    # named `build` would replace this function once imported.
    from canary.training.trainers.ppo.building import build_ppo

    return build_ppo(spec)
