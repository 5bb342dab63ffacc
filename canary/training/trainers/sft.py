"""Supervised fine-tuning with trl's SFTTrainer: the loss is on the completion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canary.protocol.spec import WorkloadSpec
from canary.training.trainers.offline import build_on_rows, require_kept

if TYPE_CHECKING:
    from trl import SFTTrainer


def build(spec: WorkloadSpec) -> SFTTrainer:
    """An SFTTrainer over the config's model and data, not yet started."""
    trainer: SFTTrainer = build_on_rows(
        spec, packing=False, loss_type="nll", dataset_text_field="text"
    )
    require_kept(spec, trainer)
    return trainer
