"""REINFORCE, leave-one-out, with trl's RLOOTrainer and a reward that can be checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canary.protocol.spec import WorkloadSpec
from canary.training.trainers.online import build_grouped

if TYPE_CHECKING:
    from trl import RLOOTrainer


def build(spec: WorkloadSpec) -> RLOOTrainer:
    """A RLOOTrainer, not yet started."""
    trainer: RLOOTrainer = build_grouped(spec)
    return trainer
