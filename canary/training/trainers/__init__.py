"""Build the trainer of a canary. Importing this package does not import torch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from canary.protocol.spec import WorkloadSpec

if TYPE_CHECKING:
    from transformers import Trainer


def build_trainer(spec: WorkloadSpec) -> Trainer:
    """Return the trainer for `spec.config.training_type`, ready for `.train()`.

    Raises ConfigError or InputError if the config, the model or the data cannot be used.
    """
    # Imported here because it imports torch.
    from canary.training.trainers import speed

    trainer: Trainer = importlib.import_module(spec.config.trainer.builder).build(spec)
    speed.apply(trainer, spec.config)
    return trainer


__all__ = ["WorkloadSpec", "build_trainer"]
