"""Several ranks from inside one of them: how they were set up, and rows of other nodes."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

import torch
import torch.distributed

FSDP_FACTS = (
    "fsdp_version",
    "sharding_strategy",
    "reshard_after_forward",
    "state_dict_type",
    "cpu_offload",
    "activation_checkpointing",
)

ASKED = {"FSDP": "ACCELERATE_USE_FSDP", "DEEPSPEED": "ACCELERATE_USE_DEEPSPEED"}
"""Variables by which `accelerate launch` hands on what its config file asks for."""


def describe_distributed(trainer: Any) -> dict[str, Any]:
    """`{type, world_size, backend, fsdp, deepspeed}` from the trainer's accelerator; empty for one
    process without a plug-in."""
    state = getattr(getattr(trainer, "accelerator", None), "state", None)
    kind = getattr(getattr(state, "distributed_type", None), "value", "NO")
    facts: dict[str, Any] = {"type": str(kind), "world_size": world_size()}
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        facts["backend"] = str(torch.distributed.get_backend())
    fsdp = getattr(state, "fsdp_plugin", None)
    if fsdp is not None:
        facts["fsdp"] = {name: _text(getattr(fsdp, name, None)) for name in FSDP_FACTS}
    deepspeed = getattr(state, "deepspeed_plugin", None)
    if deepspeed is not None:
        facts["deepspeed"] = _deepspeed(deepspeed)
    return facts if facts["world_size"] > 1 or fsdp is not None or deepspeed is not None else {}


def not_as_asked(facts: dict[str, Any]) -> list[str]:
    """A line for a plug-in that `accelerate launch` was asked for and the training ran without."""
    kind = facts.get("type", "NO")
    return [
        f"{name} was asked for, and the training ran as {kind}"
        for name, variable in ASKED.items()
        if os.environ.get(variable, "").lower() == "true" and kind != name
    ]


def _deepspeed(plugin: Any) -> dict[str, Any]:
    config = getattr(plugin, "deepspeed_config", None) or {}
    text = json.dumps(config, sort_keys=True, default=str)
    return {
        "zero_stage": getattr(plugin, "zero_stage", None),
        "config_sha256": hashlib.sha256(text.encode()).hexdigest(),
    }


def _text(value: Any) -> Any:
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def world_size() -> int:
    """Ranks that met; 1 where none had to."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return int(torch.distributed.get_world_size())
    return 1


def of_every_rank(mine: dict[str, Any]) -> list[dict[str, Any]]:
    """What each rank gave, in order of ranks. Every rank must call it.

    Small things only: it travels pickled, through the default group.
    """
    found: list[Any] = [None] * world_size()
    torch.distributed.all_gather_object(found, mine)
    return found
