"""Build the trainer of a canary. Importing this package does not import torch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from canary.config.trainers import TRAINERS
from canary.errors import ConfigError
from canary.protocol.spec import WorkloadSpec

if TYPE_CHECKING:
    from transformers import Trainer


def build_trainer(spec: WorkloadSpec) -> Trainer:
    """Return the trainer for `spec.config.training_type`, ready for `.train()`.

    Raises ConfigError or InputError if the config, the model or the data cannot be used.
    """
    row = spec.config.trainer
    if not row.builder:
        raise ConfigError(
            f"no trainer for training_type '{spec.config.training_type}'",
            f"known: {', '.join(TRAINERS)}",
            key="training_type",
        )
    trainer: Trainer = importlib.import_module(row.builder).build(spec)
    return trainer


__all__ = ["WorkloadSpec", "build_trainer"]
