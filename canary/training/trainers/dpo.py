"""Direct preference optimization with trl's DPOTrainer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canary.protocol.spec import WorkloadSpec
from canary.training.trainers.offline import build_on_rows, require_kept

if TYPE_CHECKING:
    from trl import DPOTrainer


def build(spec: WorkloadSpec) -> DPOTrainer:
    """A DPOTrainer whose reference is the policy as it starts, not yet started."""
    trainer: DPOTrainer = build_on_rows(spec, beta=spec.config.beta, loss_type=["sigmoid"])
    require_kept(spec, trainer)
    return trainer
