"""Find the settings that a training really has when it begins.

Code may have changed what the config asks for. These facts are not a stage of the comparison: two
versions of a package may differ in them and train the same. They are evidence for a diagnosis, once
another signal has shown that the sides differ.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from types import CodeType
from typing import Any

import torch

from canary.config.setting_names import may_be_secret
from canary.training.collectors.ran import is_users_file
from canary.training.exact.trainer_settings import arguments_of, plain

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


def own_loss(trainer: Any) -> str | None:
    """Return the method with which the user's code computes the loss; None if a library does."""
    return own_method(trainer, LOSSES)


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
