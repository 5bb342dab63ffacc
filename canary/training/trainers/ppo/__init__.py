"""Proximal policy optimization with a loop of the canary's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canary.protocol.spec import WorkloadSpec

if TYPE_CHECKING:
    from canary.training.trainers.ppo.trainer import PPOTrainer


def build(spec: WorkloadSpec) -> PPOTrainer:
    """A PPOTrainer, not yet started."""
    # Here, because the formulas and settings of this package are used without the rest. The module
    # has another name than this function, which it would stand in the place of once imported.
    from canary.training.trainers.ppo.building import build_ppo

    return build_ppo(spec)
