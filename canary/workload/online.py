"""What GRPO and RLOO share: settings of generation, and a policy that trl can load again."""

from __future__ import annotations

import importlib.util
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from canary.errors import ConfigError
from canary.workload import speed
from canary.workload.model import load_model, save_initial
from canary.workload.spec import WorkloadSpec


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
