"""Workloads: what a canary trains. Importing this package loads no torch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from canary.config.schema import TRAINING_TYPES
from canary.errors import ConfigError
from canary.protocol.spec import WorkloadSpec

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
    # Here, because both load the training stack.
    from canary.training.trainers import speed, trl_defaults

    trl_own = trl_defaults.asked()
    if trl_own:
        spec = trl_defaults.without_switches(spec)
    name = "trl_ppo" if trl_own and training_type == "ppo" else training_type
    trainer: Trainer = importlib.import_module(f"canary.training.trainers.{name}").build(spec)
    if trl_own:
        trl_defaults.describe(spec, trainer)
    speed.apply(trainer, spec.config)
    return trainer


__all__ = ["TRAINERS", "WorkloadSpec", "build_trainer"]
