"""The user's trainer: what `trainer_factory` returns."""

from __future__ import annotations

from transformers import Trainer

from canary.errors import ConfigError
from canary.protocol.spec import WorkloadSpec
from canary.training.plugins import call, load_callable


def build(spec: WorkloadSpec) -> Trainer:
    """Return the user's trainer: checked, not started, with the config's steps."""
    key, path = "trainer_factory", spec.config.trainer_factory
    assert path is not None
    trainer = call(ConfigError, key, path, load_callable(key, path), spec)
    if not isinstance(trainer, Trainer):
        raise ConfigError(
            f"{key} '{path}' returned a {type(trainer).__name__} instead of a transformers.Trainer",
            "return a Trainer, or a subclass of it, that has not been started",
            key=key,
        )
    if trainer.state.global_step:
        raise ConfigError(
            f"{key} '{path}' returned a trainer that already trained "
            f"{trainer.state.global_step} steps",
            "do not call its train()",
            key=key,
        )
    if trainer.args.max_steps != spec.max_steps:
        raise ConfigError(
            f"{key} '{path}' returned a trainer with max_steps {trainer.args.max_steps}, but the "
            f"canary runs {spec.max_steps} steps",
            "set max_steps=spec.max_steps in its arguments",
            key=key,
        )
    return trainer
