"""The same training on two ranks: each has half of the micro-batches of an update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from canary.config.load import LoadedConfig
from canary.record.types import RunRecord
from canary.relations.ranks import KL_OF_ALL
from canary.relations.relation import Variation

RANKS = 2
WITHOUT_KL = "apo_zero_unpaired"
"""The loss of KTO that has no KL term."""
LAUNCHERS = ("torch.distributed", "accelerate")
"""Modules that start ranks themselves."""


def on_ranks(
    loaded: LoadedConfig, variation: Variation, record: RunRecord, device: str | None
) -> tuple[LoadedConfig, Variation] | str:
    """Return the config and the variation of a launch on two ranks, or why it is not possible.

    Args:
        loaded: the config of the launch on one rank.
        variation: what the launch does in another way.
        record: of a launch on one rank.
        device: the type of device that trained.
    """
    config = loaded.config
    if config.nproc is not None or record.env.get("world_size", 1) > 1:
        return "the training already has several ranks"
    if device not in (None, "cpu"):
        return "two ranks would need two GPUs"
    if config.training_type != "exec":
        return _built_in(loaded, variation)
    command = _under_torchrun(config.command)
    if command is None:
        return "the command does not start a Python script or module"
    changed = config.model_copy(update={"command": command})
    return replace(loaded, config=changed), variation


def _built_in(loaded: LoadedConfig, variation: Variation) -> tuple[LoadedConfig, Variation] | str:
    """Halve the micro-batches of an update."""
    config, row = loaded.config, loaded.config.trainer
    if row.online or row.own_loop:
        return "each rank would sample its own completions"
    if config.training_type == "kto" and config.trainer_args.get("loss_type") != WITHOUT_KL:
        return KL_OF_ALL
    micro, rest = divmod(config.gradient_accumulation_steps, RANKS)
    if rest:
        return "an update has an odd number of micro-batches"
    halved = {"nproc": RANKS, "gradient_accumulation_steps": micro}
    # The config already says it, so the trainer must not be changed again.
    kept: Variation = {**variation}
    kept.pop("ranks", None)
    return replace(loaded, config=config.model_copy(update=halved)), kept


def _under_torchrun(command: Sequence[str]) -> tuple[str, ...] | None:
    """Return a command of Python under torchrun; None if it starts something else."""
    if len(command) < 2 or not Path(command[0]).name.startswith("python"):
        return None
    if command[1] != "-m" and not command[1].endswith(".py"):
        return None
    if command[1] == "-m" and command[2:3] and command[2].startswith(LAUNCHERS):
        return None
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
    return (command[0], *torchrun, *command[1:])
