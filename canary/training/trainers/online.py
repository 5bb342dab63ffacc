"""GRPO and RLOO: their generation settings, and reward functions that score groups."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from canary.errors import ConfigError
from canary.protocol.spec import WorkloadSpec
from canary.training import adapt
from canary.training.data.dataset import load_rows
from canary.training.models.model import load_model, load_tokenizer, lora_config, save_initial
from canary.training.plugins import callbacks
from canary.training.trainers import speed
from canary.training.trainers.arguments import training_arguments
from canary.training.trainers.rewards import rewards_for

if TYPE_CHECKING:
    from trl import GRPOTrainer, RLOOTrainer


def build(spec: WorkloadSpec) -> GRPOTrainer | RLOOTrainer:
    """Return trl's trainer for the config's `training_type`, not yet started."""
    tokenizer = load_tokenizer(spec)
    rows = load_rows(spec, tokenizer)
    rewards = rewards_for(spec, rows)
    row = spec.config.trainer
    config_class, trainer_class = adapt.offered(row.title, row.takes)
    arguments = training_arguments(spec, config_class, **generation_settings(spec))
    trainer: GRPOTrainer | RLOOTrainer = adapt.build(
        trainer_class,
        model=load_policy(spec, tokenizer),
        reward_funcs=rewards,
        args=arguments,
        train_dataset=rows,
        processing_class=tokenizer,
        callbacks=callbacks(spec),
        peft_config=lora_config(spec),
    )
    return trainer


def generation_settings(spec: WorkloadSpec) -> dict[str, Any]:
    """Return the generation arguments of both trainers. Rollouts use the model's `generate`, unless
    trainer_args ask for vLLM; its settings are trl's.

    Raises ConfigError if vLLM is asked for but not installed.
    """
    config = spec.config
    if config.trainer_args.get("use_vllm") and importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            "trainer_args.use_vllm needs vllm, which is not installed",
            'pip install "trl[vllm]", or remove trainer_args.use_vllm',
            key="trainer_args.use_vllm",
        )
    switched = speed.generation(config)
    return {
        **({"generation_kwargs": switched} if switched else {}),
        "beta": config.beta,
        "num_generations": config.num_generations,
        "max_completion_length": config.max_new_tokens,
        "temperature": config.temperature,
        "use_vllm": False,
        "remove_unused_columns": False,
        "trust_remote_code": config.trust_remote_code,
    }


def load_policy(spec: WorkloadSpec, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Return the model. With a KL term and no adapter, save it: trl loads the reference from it."""
    model = load_model(spec, tokenizer)
    if spec.config.beta and not spec.config.use_peft:
        save_initial(spec, model)
    return model
