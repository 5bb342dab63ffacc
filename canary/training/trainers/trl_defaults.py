"""The same job as trl does it when it is told nothing of speed: CANARY_TRL_DEFAULTS=1.

Model, data, steps, rows of a step, lengths, learning rate and losses stay the config's. Precision,
checkpointing, optimizer kernel, attention, padding, caches and loading are trl's own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from canary.config.speed import SpeedConfig
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
"""Arguments that decide how fast a training goes, matched whole."""

ADAMW = ("adamw_torch", "adamw_torch_fused")
"""One optimizer, by other kernels."""

SHOWN = ("bf16", "gradient_checkpointing", "optim")
"""Arguments that the record tells of."""


def asked() -> bool:
    """Whether this process is to train as trl would by itself."""
    return os.environ.get(VARIABLE) == "1"


def without_switches(spec: WorkloadSpec) -> WorkloadSpec:
    """The same job with nothing said of its speed.

    Raises:
        ConfigError: the trainer is the user's own.
    """
    config = spec.config
    if config.trainer_factory is not None:
        raise ConfigError(
            f"{VARIABLE} is set, and a trainer_factory builds what it likes",
            f"unset {VARIABLE}",
            key="training_type",
        )
    plain = {"speed": SpeedConfig(), "attn_implementation": None, "num_workers": 0}
    return replace(spec, config=config.model_copy(update=plain), trl_defaults=True)


def left_out(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a trainer without those of speed. Another optimizer than AdamW is no matter of
    speed: it learns something else."""
    found = {name: value for name, value in arguments.items() if not LEFT_TO_TRL.fullmatch(name)}
    if arguments.get("optim", ADAMW[0]) not in ADAMW:
        found |= {name: arguments[name] for name in ("optim", "optim_args") if name in arguments}
    return {"use_vllm": False} | found if "use_vllm" in arguments else found


def describe(spec: WorkloadSpec, trainer: Any) -> None:
    """Puts into the record's notes what trl chose."""
    given = [(name, getattr(trainer.args, name, None)) for name in SHOWN]
    shown = [f"{name} {getattr(value, 'value', value)}" for name, value in given]
    model = getattr(trainer.model, "policy", trainer.model)
    attention = getattr(model.config, "_attn_implementation", None)
    spec.notes.append(
        f"trl {adapt.installed('trl')}'s own defaults in all that concerns speed, the config's "
        f"set aside: {', '.join(shown)}, attention {attention}"
    )
