"""The keys that a condition may name: settings of a training, facts of its model and machine.

The table is closed, so that a misspelt key fails when the file is read. A default is that of the
packages, in every affected version; None means that it moved, so that a missing value says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from canary.config.trainers import TRAINERS

Scalar = bool | int | float | str


@dataclass(frozen=True)
class Key:
    """A key of conditions."""

    words: str
    """What people call it."""
    default: Scalar | None = None
    """Its value where the training leaves it at its default."""


TRAINER = "trainer"
ANY_TRAINER = "transformers"
"""Every trainer that is built upon the `Trainer` of transformers."""
OTHER_TRAINERS = (
    ANY_TRAINER,
    "bco",
    "distillation",
    "gkd",
    "gold",
    "iterativesft",
    "nashmd",
    "onlinedpo",
    "prm",
    "sdft",
    "xpo",
)
"""Trainers of trl that the canary follows but does not build."""
TRAINER_NAMES = frozenset({*TRAINERS, *OTHER_TRAINERS})

ARGUMENTS: dict[str, Scalar | None] = {
    "activation_offloading": False,
    "assistant_only_loss": False,
    "average_tokens_across_devices": None,
    "bf16": None,
    "completion_only_loss": None,
    "data_seed": None,
    "dataloader_drop_last": False,
    "dataloader_num_workers": 0,
    "dataset_num_proc": None,
    "disable_dropout": None,
    "eos_token": None,
    "fp16": False,
    "gradient_accumulation_steps": 1,
    "gradient_checkpointing": None,
    "group_by_length": False,
    "label_smoothing_factor": 0.0,
    "logging_nan_inf_filter": True,
    "loss_type": None,
    "lr_scheduler_type": "linear",
    "mask_truncated_completions": False,
    "max_length": None,
    "max_prompt_length": None,
    "neftune_noise_alpha": None,
    "num_iterations": 1,
    "optim": None,
    "packing": False,
    "packing_strategy": None,
    "padding_free": False,
    "precompute_ref_log_probs": False,
    "push_to_hub": False,
    "reward_weights": None,
    "save_strategy": "steps",
    "scale_rewards": None,
    "steps_per_generation": None,
    "sync_ref_model": False,
    "temperature": None,
    "top_entropy_quantile": 1.0,
    "top_k": None,
    "torch_compile": False,
    "truncation_mode": None,
    "use_liger_kernel": False,
    "use_transformers_paged": False,
    "use_vllm": False,
    "vllm_enable_sleep_mode": False,
    "vllm_mode": None,
    "warmup_steps": None,
    "weight_decay": None,
}
"""Arguments of a trainer's config class, and their defaults."""

MODEL: dict[str, Scalar | None] = {
    "attention": None,
    "attention_dropout": 0.0,
    "model_type": None,
    "tie_word_embeddings": None,
}
"""Facts of the model and its config."""

ADAPTER: dict[str, Scalar | None] = {
    "bias": "none",
    "init_lora_weights": None,
    "lora_bias": False,
    "lora_dropout": 0.0,
    "modules_to_save": None,
    "peft_type": "LORA",
    "target_modules": None,
    "use_dora": False,
    "use_rslora": False,
}
"""Settings of the adapters."""

OTHER: dict[str, Key] = {
    TRAINER: Key("the trainer"),
    "adapters": Key("use_peft"),
    "deepspeed": Key("DeepSpeed"),
    "device": Key("the device"),
    "dtype": Key("dtype"),
    "fsdp": Key("FSDP"),
    "quantization": Key("the model's quantization"),
    "ranks": Key("the number of ranks"),
}
"""What else a record tells."""

KEYS: dict[str, Key] = {
    **OTHER,
    **{f"training.{name}": Key(name, value) for name, value in ARGUMENTS.items()},
    **{f"model.{name}": Key(f"the model's {name}", value) for name, value in MODEL.items()},
    **{f"adapter.{name}": Key(f"the adapter's {name}", value) for name, value in ADAPTER.items()},
}
PACKAGE = "package."
"""`package.vllm: ">=0.10"`: another package, by its version; `installed` asks for any."""
