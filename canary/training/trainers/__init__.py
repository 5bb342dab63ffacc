"""Workloads: what a canary trains. Importing this package loads no torch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from canary.config.trainers import TRAINERS
from canary.errors import ConfigError
from canary.protocol.spec import WorkloadSpec

if TYPE_CHECKING:
    from transformers import Trainer


def build_trainer(spec: WorkloadSpec) -> Trainer:
    """The trainer that `spec.config.training_type` names, ready for `.train()`.

    Raises ConfigError or InputError where the config, the model or the data cannot be used.
    """
    row = spec.config.trainer
    if not row.builder:
        raise ConfigError(
            f"no trainer for training_type '{spec.config.training_type}'",
            f"known: {', '.join(TRAINERS)}",
            key="training_type",
        )
    # Here, because both load the training stack.
    from canary.training.trainers import speed, trl_defaults

    trl_own = trl_defaults.asked()
    if trl_own:
        spec = trl_defaults.without_switches(spec)
    builder = row.trl_builder if trl_own and row.trl_builder else row.builder
    trainer: Trainer = importlib.import_module(builder).build(spec)
    if trl_own:
        trl_defaults.describe(spec, trainer)
    speed.apply(trainer, spec.config)
    return trainer


__all__ = ["WorkloadSpec", "build_trainer"]
