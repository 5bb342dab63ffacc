"""Contrastive preference optimization with the CPOTrainer of `trl.experimental`: no reference."""

from __future__ import annotations

from typing import Any

from canary.protocol.spec import WorkloadSpec
from canary.training.trainers.offline import build_on_rows, require_completions


def build(spec: WorkloadSpec) -> Any:
    """A CPOTrainer, not yet started. ConfigError where this trl offers none."""
    trainer = build_on_rows(spec, beta=spec.config.beta, remove_unused_columns=False)
    require_completions(spec, trainer)
    return trainer
