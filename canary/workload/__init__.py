"""Workloads: what a canary trains. Importing this package loads no torch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from canary.config.schema import TRAINING_TYPES
from canary.errors import ConfigError
from canary.workload.spec import WorkloadSpec

if TYPE_CHECKING:
    from transformers import Trainer

TRAINERS = (*TRAINING_TYPES, "custom")


def build_trainer(spec: WorkloadSpec) -> Trainer:
    """The trainer that `spec.config.training_type` names, ready for `.train()`.

    Raises ConfigError or InputError where the config, the model or the data cannot be used.
    """
    training_type = spec.config.training_type
    if training_type not in TRAINERS:
        raise ConfigError(
            f"no trainer for training_type '{training_type}'",
            f"known: {', '.join(TRAINERS)}",
            key="training_type",
        )
    module = importlib.import_module(f"canary.workload.{training_type}")
    trainer: Trainer = module.build(spec)
    importlib.import_module("canary.workload.speed").apply(trainer, spec.config)
    return trainer


__all__ = ["TRAINERS", "WorkloadSpec", "build_trainer"]
