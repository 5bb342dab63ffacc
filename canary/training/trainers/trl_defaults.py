"""The same job with trl's defaults for everything that affects speed: CANARY_TRL_DEFAULTS=1.

The config still sets model, data, steps, rows per step, lengths, learning rate and losses. trl's
defaults set precision, checkpointing, optimizer kernel, attention, padding, caches and loading.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from canary.config.sections import SpeedConfig
from canary.errors import ConfigError
from canary.protocol.spec import WorkloadSpec
from canary.training import adapt

VARIABLE = "CANARY_TRL_DEFAULTS"

LEFT_TO_TRL = re.compile(
    r"optim|optim_args|bf16|fp16|tf32|torch_compile.*|torch_empty_cache_steps|dataloader_(?!drop_last)"
    r".*|(gradient|activation)_checkpointing.*|use_liger.*|liger_.*|pad_to_multiple_of|padding_free"
    r"|group_by_length|train_sampling_strategy|cache_implementation|use_vllm|vllm_.*"
    r"|use_transformers_.*"
)
"""Arguments that affect speed; the pattern must match the whole name."""

ADAMW = ("adamw_torch", "adamw_torch_fused")
"""The same optimizer with different kernels."""

SHOWN = ("bf16", "gradient_checkpointing", "optim")
"""Arguments that the record's note shows."""


def asked() -> bool:
    """Return whether this process must train with trl's defaults."""
    return os.environ.get(VARIABLE) == "1"


def without_switches(spec: WorkloadSpec) -> WorkloadSpec:
    """Return the same job without speed settings. Raises ConfigError if trl does not train it."""
    config = spec.config
    why = "it cannot change what a trainer_factory builds" if config.trainer_factory else None
    if config.trainer.own_loop:
        why = f"{config.trainer.title} is the canary's own loop"
    if why is not None:
        words = f"{VARIABLE} is set, but {why}"
        raise ConfigError(words, f"unset {VARIABLE}", key="training_type")
    plain = {"speed": SpeedConfig(), "attn_implementation": None, "num_workers": 0}
    return replace(spec, config=config.model_copy(update=plain), trl_defaults=True)


def without_speed(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trainer's arguments without those for speed. An optimizer other than AdamW stays,
    because it changes what is learned."""
    found = {name: value for name, value in arguments.items() if not LEFT_TO_TRL.fullmatch(name)}
    if arguments.get("optim", ADAMW[0]) not in ADAMW:
        found |= {name: arguments[name] for name in ("optim", "optim_args") if name in arguments}
    return {"use_vllm": False} | found if "use_vllm" in arguments else found


def describe(spec: WorkloadSpec, trainer: Any) -> None:
    """Add what trl chose to the record's notes."""
    given = [(name, getattr(trainer.args, name, None)) for name in SHOWN]
    shown = [f"{name} {getattr(value, 'value', value)}" for name, value in given]
    model = getattr(trainer.model, "policy", trainer.model)
    attention = getattr(model.config, "_attn_implementation", None)
    spec.notes.append(
        f"speed settings are the defaults of trl {adapt.installed('trl')}, not the config's: "
        f"{', '.join(shown)}, attention {attention}"
    )
