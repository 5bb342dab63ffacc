"""REINFORCE, leave-one-out, with trl's RLOOTrainer and a reward that can be checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canary.workload.online import build_grouped
from canary.workload.spec import WorkloadSpec

if TYPE_CHECKING:
    from trl import RLOOTrainer


def build(spec: WorkloadSpec) -> RLOOTrainer:
    """A RLOOTrainer, not yet started."""
    trainer: RLOOTrainer = build_grouped(spec)
    return trainer
