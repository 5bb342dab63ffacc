"""Several ranks through torchrun: `canary run --nproc 2`, on one machine or on several."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from canary.errors import UsageError
from canary.machine.program import module


@dataclass(frozen=True)
class Rendezvous:
    """Where the agents of several machines meet: torchrun's options of the same names."""

    nnodes: int = 1
    node_rank: int | None = None
    endpoint: str | None = None

    def check(self) -> None:
        """Refuse settings with which torchrun would only wait.

        Raises:
            UsageError: the machines could not find each other.
        """
        if self.nnodes < 1:
            raise UsageError(f"--nnodes {self.nnodes} is below 1", "give the number of machines")
        if self.nnodes > 1 and not self.endpoint:
            raise UsageError(
                f"--nnodes {self.nnodes} needs an address where the machines meet",
                "add the same --rdzv-endpoint HOST:PORT on each machine",
            )
        if self.node_rank is not None and not 0 <= self.node_rank < self.nnodes:
            raise UsageError(
                f"--node-rank {self.node_rank} does not fit --nnodes {self.nnodes}",
                f"use a number from 0 to {self.nnodes - 1}",
            )


def torchrun_command(nproc: int, rendezvous: Rendezvous, launch: int) -> tuple[str, ...]:
    """Return the command that starts `nproc` workers here; the caller appends the job's file.

    Each launch has its rendezvous id: a machine that starts the next launch early must not join the
    previous one.
    """
    words = [sys.executable, *module("canary.training.torchrun"), "--nproc-per-node", str(nproc)]
    if rendezvous.nnodes > 1:
        words += ["--nnodes", str(rendezvous.nnodes), "--rdzv-backend", "c10d"]
        words += ["--rdzv-endpoint", str(rendezvous.endpoint)]
        words += ["--rdzv-id", f"canary-{launch}"]
        if rendezvous.node_rank is not None:
            words += ["--node-rank", str(rendezvous.node_rank)]
    else:
        words.append("--standalone")
    # Torchrun's own `-m` would look into the working folder first.
    return (*words, "--no-python", sys.executable, "-u", *module("canary.training.worker"))


PROCESSES = re.compile(r"^--(?:nproc[-_]per[-_]node|num[-_]processes)(?:=(\d+))?$")
"""The options of torchrun and `accelerate launch` for the number of ranks."""


def asked_ranks(command: Sequence[str]) -> int | None:
    """Return how many ranks per machine a command asks for, None if it does not say."""
    for index, word in enumerate(command):
        match = PROCESSES.match(word)
        if match is None:
            continue
        value = match[1] or (command[index + 1] if index + 1 < len(command) else "")
        return int(value) if value.isdigit() else None
    return None


def fewer_than_asked(command: Sequence[str], world_size: int) -> str:
    """Return a note if a command asked for several ranks but trained on one, else ""."""
    asked = asked_ranks(command)
    if asked is None or asked < 2 or world_size > 1:
        return ""
    hint = (
        "; accelerate launch --cpu starts only one process, use torchrun --nproc-per-node"
        if "--cpu" in command
        else ""
    )
    return f"the command asked for {asked} processes, but the training ran on one{hint}"
