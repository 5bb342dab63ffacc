"""Odds-ratio preference optimization with the ORPOTrainer of `trl.experimental`: no reference."""

from __future__ import annotations

from typing import Any

from canary.workload.on_rows import build_on_rows, require_completions
from canary.workload.spec import WorkloadSpec


def build(spec: WorkloadSpec) -> Any:
    """An ORPOTrainer, not yet started. ConfigError where this trl offers none."""
    trainer = build_on_rows(spec, beta=spec.config.beta, remove_unused_columns=False)
    require_completions(spec, trainer)
    return trainer
