"""What each trainer uses of a config, and the values where a config gives none."""

from __future__ import annotations

from typing import Any

from canary.config.ppo import PPOConfig
from canary.config.schema import GROUP_TRAINERS, ONLINE_TRAINERS, TRAINING_TYPES, TrainingType

BUILT_IN_STEPS = 100
"""`max_steps` of the built-in trainers where a config gives none."""

_ONLINE_DEFAULTS: dict[str, Any] = {
    "learning_rate": 1e-5,
    "max_new_tokens": 32,
    "temperature": 1.0,
}
_GROUP_DEFAULTS: dict[str, Any] = _ONLINE_DEFAULTS | {"num_generations": 4}

TRAINER_DEFAULTS: dict[TrainingType, dict[str, Any]] = {
    "sft": {"learning_rate": 5e-4, "max_length": 256},
    "dpo": {"learning_rate": 5e-5, "max_length": 256, "beta": 0.1},
    "reward": {"learning_rate": 1e-4, "max_length": 256},
    "kto": {"learning_rate": 5e-5, "max_length": 256, "beta": 0.1},
    "grpo": _GROUP_DEFAULTS | {"beta": 0.04},
    "rloo": _GROUP_DEFAULTS | {"beta": 0.05},
    "ppo": _ONLINE_DEFAULTS | {"ppo": PPOConfig()},
    "orpo": {"learning_rate": 1e-4, "max_length": 256, "beta": 0.1},
    "cpo": {"learning_rate": 5e-5, "max_length": 256, "beta": 0.1},
    "custom": {},
    "exec": {},
}
"""Values of the fields that are null in a config, by trainer."""

EXEC_KEYS = (
    "name",
    "description",
    "tier",
    "training_type",
    "command",
    "max_steps",
    "device",
    "threads",
    "stop_on",
    "metrics_warmup_steps",
    "probe_steps",
    "repeats",
    "timeout",
    "output_dir",
    "profiler",
    "thresholds",
)
"""Keys that mean something where the training is a command of the user's own."""

EXEC_DEFAULTS: dict[str, Any] = {"threads": None, "timeout": 7 * 86_400.0}
"""What differs for a command: as many threads and as much time as it takes by itself."""

LORA_DEFAULTS: dict[str, Any] = {"lora_r": 8, "lora_alpha": 16, "lora_dropout": 0.0}

_OFFLINE: tuple[TrainingType, ...] = ("sft", "dpo", "reward", "kto", "orpo", "cpo")

TRAINER_FIELDS: dict[str, tuple[TrainingType, ...]] = {
    "beta": ("dpo", "kto", "grpo", "rloo", "orpo", "cpo"),
    "max_length": _OFFLINE,
    "max_prompt_length": ("dpo", "reward", "kto", "grpo", "rloo", "ppo", "orpo", "cpo"),
    "max_new_tokens": ONLINE_TRAINERS,
    "num_generations": GROUP_TRAINERS,
    "fixed_length": ONLINE_TRAINERS,
    "ppo": ("ppo",),
    "speed.advantages": ("ppo",),
    "speed.logprobs": ("ppo",),
    "speed.shared_forward": ("ppo",),
    "speed.kv_cache": ONLINE_TRAINERS,
    "speed.decode": ONLINE_TRAINERS,
    "speed.rollout_batch": ("ppo",),
    "speed.lengths": ("sft", "dpo", "reward", "kto", "ppo"),
    "speed.optimizer": TRAINING_TYPES,
    "speed.prefetch": TRAINING_TYPES,
    "speed.pin_memory": TRAINING_TYPES,
    "speed.compile": TRAINING_TYPES,
    "speed.liger": TRAINING_TYPES,
    "temperature": ONLINE_TRAINERS,
    "reward_functions": ONLINE_TRAINERS,
    "formatting_function": ("sft",),
    "data_collator": _OFFLINE,
    "callbacks": TRAINING_TYPES,
    "model_factory": TRAINING_TYPES,
    "trainer_factory": ("custom",),
}
"""Fields that only some trainers can use."""

FACTORY_READS = ("beta", "max_length", "max_prompt_length", *_GROUP_DEFAULTS)
"""Fields that a `trainer_factory` may read from the config that it is given."""

OWN_KEYS: dict[str, str] = {
    "learning_rate": "learning_rate",
    "per_device_train_batch_size": "batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "max_steps": "max_steps",
    "num_train_epochs": "max_steps",
    "warmup_steps": "warmup_steps",
    "seed": "seed",
    "data_seed": "seed",
    "output_dir": "output_dir",
    "beta": "beta",
    "max_length": "max_length",
    "max_prompt_length": "max_prompt_length",
    "max_completion_length": "max_new_tokens",
    "num_generations": "num_generations",
    "temperature": "temperature",
    "bf16": "dtype",
    "fp16": "dtype",
    "use_cpu": "device",
    "report_to": "report_to",
    "dataloader_num_workers": "num_workers",
}
"""`trainer_args` that have a key of their own here."""
