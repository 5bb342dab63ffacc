"""Describe the settings of any trainer, also a user's: its class, arguments and device, and what a
training really has when it begins.

Code may have changed what the config asks for. These facts are not a stage of the comparison: two
versions of a package may differ in them and train the same. They are evidence for a diagnosis, once
another signal has shown that the sides differ.
"""

from __future__ import annotations

import dataclasses
import gc
import os
import sys
import threading
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import CodeType
from typing import Any

import torch

from canary.config.setting_names import is_secret, is_special_token, may_be_secret
from canary.config.trainers import TRAINERS
from canary.training.collectors.ran import is_users_file
from canary.training.exact.code import in_repository

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
        "model_name": plain(getattr(config, "_name_or_path", None)) or type(trainer.model).__name__,
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
    """Return the value as JSON types; other objects become their text, or their type's name.

    A path in the user's repository is relative to it: another checkout has the same."""
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(item) for item in value]
    if value is None or isinstance(value, int | float | bool):
        return value
    text = str(value)
    inside = in_repository(Path(text)) if text.startswith(os.sep) else None
    if isinstance(value, str) or inside:
        return inside or text
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


LONGEST_TEXT = 80
COUNTERS = ("is_in_train", "_step", "total_flos", "current_flos")
"""Attributes of a trainer that only show its progress."""

PPO_PARTS = ("sampling", "switches", "kl_coefficient")
"""Attributes of the canary's PPO trainer that hold settings."""


def effective_settings(trainer: Any) -> dict[str, object]:
    """Return the current scalar settings by dotted name: `args.*`, `trainer.*`, `optimizer.*`,
    `generation.*`, `model.*`, `peft.*`, `collator.*`, `torch.*`."""
    model = getattr(trainer, "model", None)
    config: Any = getattr(model, "config", None)
    found: dict[str, object] = {}
    arguments = getattr(trainer, "args", None)
    if arguments is not None and hasattr(arguments, "__dataclass_fields__"):
        found.update(_scalars("args", arguments_of(arguments)))
    found.update(_scalars("trainer", _attributes(trainer)))
    found.update(_scalars("collator", _attributes(getattr(trainer, "data_collator", None))))
    for part in PPO_PARTS:
        found.update(_scalars(part, _attributes(getattr(trainer, part, None))))
    found.update(_optimizers(trainer))
    for holder in (model, trainer):
        generation: Any = getattr(holder, "generation_config", None)
        if hasattr(generation, "to_diff_dict"):
            found.update(_scalars("generation", generation.to_diff_dict()))
    if hasattr(config, "to_diff_dict"):
        found.update(_scalars("model", config.to_diff_dict()))
    for name, adapter in (getattr(model, "peft_config", None) or {}).items():
        found.update(_scalars(f"peft.{name}", adapter.to_dict()))
    if isinstance(model, torch.nn.Module):
        found.update(_modules(model))
    found.update(_torch_settings())
    found.update(_python_settings())
    return found


def _attributes(owner: Any) -> dict[str, object]:
    values = getattr(owner, "__dict__", {})
    return {
        name: value
        for name, value in values.items()
        if not name.startswith("_") and name not in COUNTERS
    }


def _scalars(prefix: str, values: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield numbers, flags, short texts and lists of them, but no paths and no secrets."""
    for name, value in values.items():
        if may_be_secret(name):
            continue
        simple = plain(value) if isinstance(value, list | tuple | set | frozenset) else value
        if isinstance(value, set | frozenset):
            simple = sorted(map(str, value))
        members = simple if isinstance(simple, list) else [simple]
        if len(members) <= 16 and all(_is_scalar(member) for member in members):
            yield f"{prefix}.{name}", simple


def _is_scalar(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= LONGEST_TEXT and os.sep not in value
    return value is None or isinstance(value, bool | int | float)


def _optimizers(trainer: Any) -> dict[str, object]:
    optimizers = getattr(trainer, "optimizers", None) or (getattr(trainer, "optimizer", None),)
    found: dict[str, object] = {}
    for place, wrapped in enumerate(o for o in optimizers if o is not None):
        optimizer = getattr(wrapped, "optimizer", wrapped)
        prefix = f"optimizer{place or ''}"
        groups = getattr(optimizer, "param_groups", [])
        found[f"{prefix}.class"] = type(optimizer).__name__
        found[f"{prefix}.groups"] = len(groups)
        for index, group in enumerate(groups):
            known = {k: v for k, v in group.items() if k not in ("params", "lr")}
            found.update(_scalars(f"{prefix}.{index}", known))
            found[f"{prefix}.{index}.tensors"] = len(group["params"])
    scheduler = getattr(trainer, "lr_scheduler", None)
    if scheduler is not None:
        inner = getattr(scheduler, "scheduler", scheduler)
        found["scheduler.class"] = type(inner).__name__
    return found


def _modules(model: torch.nn.Module) -> dict[str, object]:
    """Return the settings of modules that change what they compute."""
    dropouts = {m.p for m in model.modules() if isinstance(m, torch.nn.Dropout)}
    checkpointing = any(getattr(m, "gradient_checkpointing", False) for m in model.modules())
    scales = {
        float(scale)
        for module in model.modules()
        # In attention `scaling` is a number; in LoRA layers it is a dict, one value per adapter.
        if isinstance(scaling := getattr(module, "scaling", None), dict)
        for scale in scaling.values()
    }
    return {
        **({"peft.scaling": sorted(scales)} if scales else {}),
        "modules.dropout": sorted(dropouts - {0.0}),
        "modules.gradient_checkpointing": checkpointing,
    }


def _torch_settings() -> dict[str, object]:
    return {
        "torch.default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "torch.matmul_precision": torch.get_float32_matmul_precision(),
        "torch.anomaly_mode": torch.is_anomaly_enabled(),
        "torch.grad_enabled": torch.is_grad_enabled(),
        "torch.cudnn_benchmark": torch.backends.cudnn.benchmark,
        "torch.flash_sdp": torch.backends.cuda.flash_sdp_enabled(),
        "torch.mem_efficient_sdp": torch.backends.cuda.mem_efficient_sdp_enabled(),
    }


def _python_settings() -> dict[str, object]:
    """Return the settings of the interpreter that slow everything down."""
    return {
        "python.tracemalloc": tracemalloc.is_tracing(),
        "python.tracing": sys.gettrace() is not None,
        "python.profiling": sys.getprofile() is not None,
        "python.gc": gc.isenabled(),
        "python.gc_threshold": list(gc.get_threshold()),
        "python.switch_interval": sys.getswitchinterval(),
        "python.dev_mode": sys.flags.dev_mode,
        "python.threads": threading.active_count(),
    }


LOSSES = ("compute_loss", "_compute_loss", "dpo_loss", "kto_loss", "get_batch_loss_metrics")
"""Methods of trainers that compute a loss."""


def own_method(trainer: Any, names: Sequence[str]) -> str | None:
    """Return the first of these methods that is the user's code."""
    for name in names:
        code = getattr(unwrapped(getattr(trainer, name, None)), "__code__", None)
        if isinstance(code, CodeType) and is_users_file(code.co_filename):
            return name
    return None


def unwrapped(called: Any) -> Any:
    """Return the function inside partials, bound methods and the canary's wrappers of plugins."""
    inner = called
    while not hasattr(inner, "__code__") or hasattr(inner, "function"):
        values = (getattr(inner, name, None) for name in ("func", "__func__", "function"))
        behind = next((value for value in values if callable(value)), None)
        if behind is None:
            return inner
        inner = behind
    return inner
