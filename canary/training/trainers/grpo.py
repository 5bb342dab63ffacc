"""Group relative policy optimization with trl's GRPOTrainer and a reward that can be checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canary.protocol.spec import WorkloadSpec
from canary.training.trainers.online import build_grouped

if TYPE_CHECKING:
    from trl import GRPOTrainer


def build(spec: WorkloadSpec) -> GRPOTrainer:
    """A GRPOTrainer, not yet started."""
    trainer: GRPOTrainer = build_grouped(spec)
    return trainer
