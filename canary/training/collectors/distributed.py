"""The setup of several ranks, as seen from one of them, and values gathered from all."""

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
"""Environment variables by which `accelerate launch` passes on the plug-in of its config file."""


def describe_distributed(trainer: Any) -> dict[str, Any]:
    """Return `{type, world_size, backend, fsdp, deepspeed}` from the trainer's accelerator; empty
    for one process without a plug-in."""
    known = getattr(trainer, "distributed_facts", None)
    if known is not None:
        return dict(known) if known["world_size"] > 1 else {}
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
    """Return a line for each plug-in that `accelerate launch` requested but the training lacks."""
    kind = facts.get("type", "NO")
    return [
        f"{name} was requested, but the training ran as {kind}"
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
    """Return the number of ranks; 1 without `torch.distributed`."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return int(torch.distributed.get_world_size())
    return 1


def of_every_rank(mine: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the values of all ranks, in rank order. Every rank must call it.

    Only for small values: they are pickled and sent through the default group.
    """
    found: list[Any] = [None] * world_size()
    torch.distributed.all_gather_object(found, mine)
    return found
