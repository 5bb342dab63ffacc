"""Checks of the `speed` section: what a switch needs, and what it conflicts with."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

from canary.config.schema import CanaryConfig
from canary.errors import ConfigError

SAID_TWICE: dict[str, tuple[str, ...]] = {
    "kv_cache": ("generation_kwargs.use_cache",),
    "decode": ("cache_implementation", "generation_kwargs.cache_implementation"),
    "lengths": (
        "pad_to_multiple_of",
        "padding_free",
        "packing",
        "group_by_length",
        "train_sampling_strategy",
    ),
    "optimizer": ("optim", "optim_args"),
    "prefetch": ("dataloader_prefetch_factor", "dataloader_persistent_workers"),
    "pin_memory": ("dataloader_pin_memory",),
    "compile": ("torch_compile",),
    "liger": ("use_liger_kernel",),
}
"""Switch -> keys of `trainer_args` that set the same thing."""

Refuse = Callable[[str, str, str], None]


def check_speed(config: CanaryConfig, refuse: Refuse) -> None:
    """Call `refuse(key, message, hint)` for each switch that cannot be used."""
    speed = config.speed
    for switch, names in SAID_TWICE.items():
        for name in names:
            if getattr(speed, switch) is not None and given(config.trainer_args, name):
                message = f"and trainer_args.{name} set the same thing"
                refuse(f"speed.{switch}", message, "keep one of the two")
    if speed.prefetch is not None and config.num_workers == 0:
        refuse("speed.prefetch", "needs data workers", "set num_workers to 1 or more")
    if speed.kv_cache is False and speed.decode is not None:
        refuse("speed.decode", "needs a KV cache, but speed.kv_cache is false", "remove one")
    for switch in ("pin_memory", "liger"):
        if getattr(speed, switch) and config.device == "cpu":
            refuse(f"speed.{switch}", "needs a GPU, but device is cpu", "remove one of the two")
    _check_lengths(config, refuse)
    of_generate = {
        "fixed_length": config.fixed_length or None,
        "speed.kv_cache": speed.kv_cache,
        "speed.decode": speed.decode,
    }
    for key, value in of_generate.items():
        if value is not None and config.trainer_args.get("use_vllm"):
            refuse(key, "is for the model's generate, not for vLLM", "remove one of the two")
    if config.fixed_length and given(config.trainer_args, "generation_kwargs.min_new_tokens"):
        message = "and trainer_args.generation_kwargs.min_new_tokens set the same thing"
        refuse("fixed_length", message, "keep one of the two")


def require_liger_installed() -> None:
    """Raise ConfigError if liger-kernel is not installed. Imports nothing."""
    if importlib.util.find_spec("liger_kernel") is None:
        raise ConfigError(
            "speed.liger needs liger-kernel, which is not installed",
            'pip install "rlhf-canary[liger]", or remove speed.liger',
            key="speed.liger",
        )


def bound_to_its_micro_batch(config: CanaryConfig) -> str:
    """Return why a row's loss depends on the rows of its micro-batch; empty if it does not."""
    return config.trainer.bound_to_micro_batch(config.trainer_args)


def _check_lengths(config: CanaryConfig, refuse: Refuse) -> None:
    lengths = config.speed.lengths
    reason = bound_to_its_micro_batch(config)
    if lengths == "bucketed" and reason:
        message = f"bucketed would change what {config.training_type} learns: {reason}"
        refuse("speed.lengths", message, "choose longest or fixed")
    if lengths == "fixed" and config.data_collator is not None:
        refuse("speed.lengths", "fixed conflicts with data_collator", "remove one of the two")


def given(arguments: dict[str, Any], name: str) -> bool:
    """Return whether nested arguments contain a dotted name."""
    place: Any = arguments
    for part in name.split("."):
        if not isinstance(place, dict) or part not in place:
            return False
        place = place[part]
    return True
