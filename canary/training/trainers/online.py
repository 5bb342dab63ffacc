"""GRPO and RLOO: groups of completions, scored by functions, and the settings of generation."""

from __future__ import annotations

import importlib.util
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from canary.errors import ConfigError
from canary.protocol.spec import WorkloadSpec
from canary.training import adapt
from canary.training.data.dataset import load_rows
from canary.training.models.lora import lora_config
from canary.training.models.model import load_model, load_tokenizer, save_initial
from canary.training.plugins import callbacks
from canary.training.trainers import speed
from canary.training.trainers.arguments import training_arguments
from canary.training.trainers.rewards import rewards_for


def build(spec: WorkloadSpec) -> Any:
    """trl's trainer of the config's `training_type`, not yet started."""
    tokenizer = load_tokenizer(spec)
    rows = load_rows(spec, tokenizer)
    rewards = rewards_for(spec, rows)
    row = spec.config.trainer
    config_class, trainer_class = adapt.offered(row.title, row.takes)
    arguments = training_arguments(spec, config_class, **generation_settings(spec))
    return adapt.build(
        trainer_class,
        model=load_policy(spec, tokenizer),
        reward_funcs=rewards,
        args=arguments,
        train_dataset=rows,
        processing_class=tokenizer,
        callbacks=callbacks(spec),
        peft_config=lora_config(spec),
    )


def generation_settings(spec: WorkloadSpec) -> dict[str, Any]:
    """Arguments of both trainers. Rollouts are the model's own `generate`, unless trainer_args ask
    for vLLM, whose settings are trl's.

    Raises ConfigError where vLLM is asked for and is not installed.
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
    """The model; with a KL term and no adapter, trl reads the reference from the saved copy."""
    model = load_model(spec, tokenizer)
    if spec.config.beta and not spec.config.use_peft:
        save_initial(spec, model)
    return model
