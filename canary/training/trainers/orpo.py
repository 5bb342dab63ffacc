"""Odds-ratio preference optimization with the ORPOTrainer of `trl.experimental`: no reference."""

from __future__ import annotations

from typing import Any

from canary.protocol.spec import WorkloadSpec
from canary.training.trainers.offline import build_on_rows, require_completions


def build(spec: WorkloadSpec) -> Any:
    """An ORPOTrainer, not yet started. ConfigError where this trl offers none."""
    trainer = build_on_rows(spec, beta=spec.config.beta, remove_unused_columns=False)
    require_completions(spec, trainer)
    return trainer
