"""The user's trainer: what `trainer_factory` returns."""

from __future__ import annotations

from transformers import Trainer

from canary.errors import ConfigError
from canary.protocol.spec import WorkloadSpec
from canary.training.plugins import call, load_callable, refused


def build(spec: WorkloadSpec) -> Trainer:
    """Return the user's trainer: checked, not started, with the config's steps."""
    key, path = "trainer_factory", spec.config.trainer_factory
    assert path is not None
    trainer = call(ConfigError, key, path, load_callable(key, path), spec)
    if not isinstance(trainer, Trainer):
        what = f"returned a {type(trainer).__name__} instead of a transformers.Trainer"
        hint = "return a Trainer, or a subclass of it, that has not been started"
        raise refused(key, path, what, hint)
    if trainer.state.global_step:
        what = f"returned a trainer that already trained {trainer.state.global_step} steps"
        raise refused(key, path, what, "do not call its train()")
    if trainer.args.max_steps != spec.max_steps:
        what = f"returned a trainer with max_steps {trainer.args.max_steps}, but the canary runs "
        what += f"{spec.max_steps} steps"
        raise refused(key, path, what, "set max_steps=spec.max_steps in its arguments")
    return trainer
