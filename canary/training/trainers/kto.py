"""Kahneman-Tversky optimization with trl's KTOTrainer: completions good or bad, unpaired."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canary.protocol.spec import WorkloadSpec
from canary.training.trainers.offline import build_on_rows, require_kept

if TYPE_CHECKING:
    from trl import KTOTrainer


def build(spec: WorkloadSpec) -> KTOTrainer:
    """A KTOTrainer whose reference is the policy as it starts, not yet started."""
    trainer: KTOTrainer = build_on_rows(spec, beta=spec.config.beta, loss_type="kto")
    require_kept(spec, trainer)
    return trainer
