"""The user's trainer: what `trainer_factory` returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canary.training.plugins import trainer_from_factory

if TYPE_CHECKING:
    from transformers import Trainer

    from canary.protocol.spec import WorkloadSpec


def build(spec: WorkloadSpec) -> Trainer:
    """Return the user's trainer, not yet started."""
    return trainer_from_factory(spec)
