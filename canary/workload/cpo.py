"""Contrastive preference optimization with the CPOTrainer of `trl.experimental`: no reference."""

from __future__ import annotations

from typing import Any

from canary.workload.reference_free import build_reference_free
from canary.workload.spec import WorkloadSpec


def build(spec: WorkloadSpec) -> Any:
    """A CPOTrainer, not yet started. ConfigError where this trl offers none."""
    return build_reference_free(spec, "CPO")
