"""Describe the settings of any trainer, also a user's: its class, arguments and device."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import Any

import torch

from canary.config.setting_names import is_secret, is_special_token
from canary.config.trainers import TRAINERS

CLASSES = {f"{row.title}Trainer".lower(): name for name, row in TRAINERS.items()}
"""Training types by the name of their trainer class, in lower case."""

ALWAYS_RECORDED = (
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
    "bf16",
    "dataloader_num_workers",
    "fp16",
    "gradient_accumulation_steps",
    "gradient_checkpointing",
    "learning_rate",
    "lr_scheduler_type",
    "max_grad_norm",
    "max_steps",
    "num_train_epochs",
    "optim",
    "per_device_train_batch_size",
    "seed",
    "warmup_steps",
    "weight_decay",
)
"""Arguments recorded even if they are the class's defaults."""

NEVER_RECORDED = (
    "_n_gpu",
    "accelerator_config",
    "ddp_backend",
    "deepspeed_plugin",
    "distributed_state",
    "eval_on_start",
    "hub_model_id",
    "local_rank",
    "logging_dir",
    "output_dir",
    "project",
    "push_to_hub",
    "run_name",
    "trackio_space_id",
)
"""Arguments that name a path, a run or this process, and do not affect learning."""


def kind_of(trainer: Any) -> str:
    """Return the training type of a trainer, or `custom` if the canary does not know it."""
    names = [base.__name__.lower() for base in type(trainer).__mro__]
    return next((CLASSES[name] for name in names if name in CLASSES), "custom")


def describe_training(trainer: Any) -> dict[str, Any]:
    """Return `{trainer, training_type, model_name, dtype, use_peft, world_size, arguments}`.

    `dtype`: the dtype of autocast if it is on, otherwise that of the parameters (see `dtype_of`).
    """
    arguments = trainer.args
    config = getattr(trainer.model, "config", None)
    half = "bfloat16" if getattr(arguments, "bf16", False) else "float16"
    mixed = getattr(arguments, "bf16", False) or getattr(arguments, "fp16", False)
    return {
        "trainer": f"{type(trainer).__module__}.{type(trainer).__qualname__}",
        "training_type": kind_of(trainer),
        "model_name": getattr(config, "_name_or_path", None) or type(trainer.model).__name__,
        "dtype": half if mixed else dtype_of(trainer.model),
        "use_peft": hasattr(trainer.model, "peft_config"),
        "world_size": getattr(arguments, "world_size", 1),
        "arguments": arguments_of(arguments),
    }


def dtype_of(model: Any) -> str:
    """Return the dtype of the parameters, `mixed` if there are several (`exact.model.dtypes` counts
    them), or `float32` without parameters."""
    found = {str(value.dtype).removeprefix("torch.") for value in model.parameters()}
    return "mixed" if len(found) > 1 else next(iter(found), "float32")


def scales_gradients(training: Mapping[str, Any]) -> bool:
    """Return whether this training scales its loss to keep float16 gradients from underflow. It
    does not if the parameters themselves are float16."""
    return training["dtype"] == "float16" and bool(training["arguments"].get("fp16", True))


def arguments_of(arguments: Any) -> dict[str, Any]:
    """Return the arguments that differ from their class's defaults, plus ALWAYS_RECORDED.

    Secrets of other services and NEVER_RECORDED are left out.
    """
    found: dict[str, Any] = {}
    for field in dataclasses.fields(arguments):
        name = field.name
        if name in NEVER_RECORDED or is_secret(name) or not hasattr(arguments, name):
            continue
        value = plain(getattr(arguments, name))
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if name in ALWAYS_RECORDED or is_special_token(name) or value != plain(default):
            found[name] = value
    return found


def plain(value: Any) -> Any:
    """Return the value as JSON types; other objects become their text, or their type's name."""
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    text = str(value)
    return type(value).__name__ if " at 0x" in text or len(text) > 200 else text


def describe_device(device: torch.device, dtype: str) -> dict[str, Any]:
    """Return type, threads, dtype and CUDA version; for a GPU also name, index, peak bytes."""
    facts: dict[str, Any] = {
        "type": device.type,
        "threads": torch.get_num_threads(),
        "dtype": dtype,
        "torch_cuda": torch.version.cuda,
    }
    if device.type == "cuda":
        index = device.index if device.index is not None else torch.cuda.current_device()
        facts.update(index=index, name=torch.cuda.get_device_name(index))
        facts["peak_allocated_bytes"] = torch.cuda.max_memory_allocated(index)
        facts["peak_reserved_bytes"] = torch.cuda.max_memory_reserved(index)
    return facts
