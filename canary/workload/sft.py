"""Supervised fine-tuning with trl's SFTTrainer: the loss is on the completion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canary.workload.on_rows import build_on_rows, require_kept
from canary.workload.spec import WorkloadSpec

if TYPE_CHECKING:
    from trl import SFTTrainer


def build(spec: WorkloadSpec) -> SFTTrainer:
    """An SFTTrainer over the config's model and data, not yet started."""
    trainer: SFTTrainer = build_on_rows(
        spec, "SFT", packing=False, loss_type="nll", dataset_text_field="text"
    )
    require_kept(spec, trainer)
    return trainer
