"""Apply the switches of the config's `speed` section to any trainer.

A switch is an argument of the trainer's config class (`arguments`) or of the model's `generate`
(`generation`). Otherwise it changes the built trainer (`apply`). Null changes nothing.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
from collections.abc import Mapping
from typing import Any

from canary.config.checks import require_liger_installed
from canary.config.schema import CanaryConfig
from canary.errors import ConfigError
from canary.training.data.lengths import bucket_rows
from canary.training.models.fixed_cache import keep_one_dtype

ADAMW: Mapping[str, dict[str, bool]] = {
    "loop": {"foreach": False, "fused": False},
    "foreach": {"foreach": True, "fused": False},
    "fused": {"foreach": False, "fused": True},
}
"""Arguments of torch.optim.AdamW."""

CXX = ("g++", "clang++", "c++")
CC = ("gcc", "clang", "cc")
"""Compilers for torch.compile: it needs C++ on the CPU, and C for Triton's launchers on a GPU."""


def arguments(config: CanaryConfig, cuda: bool) -> dict[str, Any]:
    """Return arguments of the trainer's config class. `cuda`: whether a GPU trains.

    Raises ConfigError if this machine or its packages do not support a switch.
    """
    speed = config.speed
    found: dict[str, Any] = {}
    if speed.optimizer is not None:
        found["optim"] = "adamw_torch_fused" if speed.optimizer == "fused" else "adamw_torch"
    if speed.prefetch is not None:
        found["dataloader_prefetch_factor"] = speed.prefetch
        found["dataloader_persistent_workers"] = True
    if speed.pin_memory is not None:
        if speed.pin_memory and not cuda:
            raise _needs_gpu("speed.pin_memory")
        found["dataloader_pin_memory"] = speed.pin_memory
    if speed.compile is not None:
        if speed.compile:
            _require_compiler("speed.compile", cuda)
        found["torch_compile"] = speed.compile
    if speed.liger is not None:
        if speed.liger:
            _require_liger(cuda)
        found["use_liger_kernel"] = speed.liger
    if speed.lengths == "fixed" and config.max_length is not None:
        # Rows are never longer than max_length, so all are padded to exactly that.
        found["pad_to_multiple_of"] = config.max_length
    return found


def cache(config: CanaryConfig) -> dict[str, Any]:
    """Return arguments of `generate` for the config's cache."""
    speed = config.speed
    found: dict[str, Any] = {}
    if speed.kv_cache is not None:
        found["use_cache"] = speed.kv_cache
    if speed.decode in ("static", "compiled"):
        found["cache_implementation"] = "static"
    return found


def generation(config: CanaryConfig) -> dict[str, Any]:
    """Return arguments of `generate` for the config's cache and fixed completion length."""
    shortest = {"min_new_tokens": config.max_new_tokens} if config.fixed_length else {}
    return cache(config) | shortest


def compilation(config: CanaryConfig, cuda: bool) -> dict[str, Any]:
    """Return arguments of `generate` that switch compiled decoding on or off.

    Raises ConfigError if the compiler is missing.
    """
    decode = config.speed.decode
    if decode is None:
        return {}
    if decode != "compiled":
        return {"disable_compile": True}  # by default transformers compiles with a static cache
    _require_compiler("speed.decode", cuda)
    from transformers import CompileConfig

    settings: Any = CompileConfig() if cuda else CompileConfig(mode="default")
    settings._compile_all_devices = True  # on a CPU too
    return {"disable_compile": False, "compile_config": settings}


def apply(trainer: Any, config: CanaryConfig) -> None:
    """Apply the switches that no argument reaches, on this trainer instance only."""
    speed = config.speed
    if speed.optimizer is not None:
        _choose_adamw(trainer, ADAMW[speed.optimizer])
    if speed.lengths == "bucketed" and not config.trainer.own_loop:
        bucket_rows(trainer)
    if speed.liger and config.trainer.own_loop:
        _fuse_kernels(trainer)
    if speed.decode in ("static", "compiled"):
        keep_one_dtype(getattr(trainer.model, "policy", trainer.model))
    cuda = trainer.args.device.type == "cuda"
    if hasattr(trainer, "_generate_and_score_completions") and not trainer.args.use_vllm:
        for name, value in compilation(config, cuda).items():
            setattr(trainer.generation_config, name, value)
            trainer.generation_kwargs[name] = value


def _choose_adamw(trainer: Any, flags: Mapping[str, bool]) -> None:
    original = trainer.get_optimizer_cls_and_kwargs

    @functools.wraps(original)
    def chosen(*args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        family, settings = original(*args, **kwargs)
        return family, settings | flags

    trainer.get_optimizer_cls_and_kwargs = chosen


def _fuse_kernels(trainer: Any) -> None:
    """Put Liger's kernels into policy and reference. transformers does that only when its training
    loop starts, and this trainer has another loop."""
    from liger_kernel.transformers import _apply_liger_kernel_to_instance

    for model in (trainer.model.policy, trainer.ref_model):
        if model is not None:
            inner = model.get_base_model() if hasattr(model, "get_base_model") else model
            _apply_liger_kernel_to_instance(model=inner)


def _needs_gpu(key: str) -> ConfigError:
    return ConfigError(
        f"{key} needs a GPU, but the training runs on the CPU", f"remove {key}", key=key
    )


def _require_compiler(key: str, cuda: bool) -> None:
    names = CC if cuda else CXX
    chosen = os.environ.get("CC" if cuda else "CXX")
    if not any(shutil.which(name) for name in ((chosen,) if chosen else names)):
        raise ConfigError(
            f"{key} needs a {'C' if cuda else 'C++'} compiler, but this machine has none "
            f"({chosen or ', '.join(names)})",
            f"install {names[0]}, or remove {key}",
            key=key,
        )
    if cuda and importlib.util.find_spec("triton") is None:
        raise ConfigError(f"{key} needs triton", "install a GPU build of torch", key=key)


def _require_liger(cuda: bool) -> None:
    require_liger_installed()
    if not cuda:
        raise _needs_gpu("speed.liger")
