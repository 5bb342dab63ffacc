"""The setup of several ranks, as seen from one of them, and values gathered from all."""

from __future__ import annotations

import hashlib
import json
import os
import socket
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed

from canary.protocol.job import NODE_RANK, Job, Result, StepFile
from canary.record.jsonio import read_rows
from canary.record.ranks import rank_path

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


def this_rank() -> tuple[int, int]:
    """Return this process's rank and the number of ranks: as torchrun sets them, else as the
    default process group knows them."""
    distributed = torch.distributed
    if "RANK" not in os.environ and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def of_every_rank(mine: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the values of all ranks, in rank order. Every rank must call it.

    Only for small values: they are pickled and sent through the default group.
    """
    found: list[Any] = [None] * world_size()
    torch.distributed.all_gather_object(found, mine)
    return found


def on_main_machine(job: Job, rank: int, result: Result) -> Result:
    """Write rows and results of all machines' ranks on the main machine; on the others, return the
    result with a note that names it. Every rank must call it.

    The main machine is the first by `--node-rank`, else by name, so that it is the same in each
    launch: torchrun may give rank 0 to another machine each time.
    """
    rows_file = rank_path(Path(job.rows_file), rank)
    rows = [row for row in read_rows(rows_file) if row["launch"] == job.launch]
    here = {
        "node_rank": int(os.environ.get(NODE_RANK, "0")),
        "host": socket.gethostname(),
        "run_dir": str(rows_file.parent),
    }
    everyone = of_every_rank(here | {"rows": rows, "result": asdict(result)})
    machines = [(one["node_rank"], one["host"], one["run_dir"]) for one in everyone]
    main, this = min(machines), machines[rank]
    if this != main:
        note = (
            f"{machines.count(this)} of {len(machines)} ranks ran here; the record of all "
            f"ranks is in {main[2]} on {main[1]}"
        )
        return replace(result, notes=(*result.notes, note))
    if rank == machines.index(main):
        for other, one in enumerate(everyone):
            if machines[other] != main:
                _write_remote(job, other, one)
    return result


def _write_remote(job: Job, rank: int, one: dict[str, Any]) -> None:
    """Write rows and result of another machine's rank, as if it had run here."""
    rows = StepFile(rank_path(Path(job.rows_file), rank))
    for row in one["rows"]:
        rows.append(row)
    rows.close()
    Result(**one["result"]).write(rank_path(Path(job.result_file), rank))
