"""Group relative policy optimization with trl's GRPOTrainer and a reward that can be checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canary.workload.online import build_grouped
from canary.workload.spec import WorkloadSpec

if TYPE_CHECKING:
    from trl import GRPOTrainer


def build(spec: WorkloadSpec) -> GRPOTrainer:
    """A GRPOTrainer, not yet started."""
    trainer: GRPOTrainer = build_grouped(spec)
    return trainer
