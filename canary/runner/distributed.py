"""Several ranks through torchrun: `canary run --nproc 2`, on one machine or on several."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from canary.errors import UsageError


@dataclass(frozen=True)
class Rendezvous:
    """Where the agents of several machines meet; torchrun's own options of the same names."""

    nnodes: int = 1
    node_rank: int | None = None
    endpoint: str | None = None
    id: str = "canary"
    backend: str = "c10d"

    def check(self) -> None:
        """Refuses what torchrun would only wait on.

        Raises:
            UsageError: machines that could not find each other.
        """
        if self.nnodes < 1:
            raise UsageError(f"--nnodes {self.nnodes} is below 1", "give the number of machines")
        if self.nnodes > 1 and not self.endpoint:
            raise UsageError(
                f"--nnodes {self.nnodes} needs a place where the machines meet",
                "add --rdzv-endpoint HOST:PORT, the same on each",
            )
        if self.node_rank is not None and not 0 <= self.node_rank < self.nnodes:
            raise UsageError(
                f"--node-rank {self.node_rank} is not one of --nnodes {self.nnodes}",
                f"count from 0 to {self.nnodes - 1}",
            )


def torchrun_command(nproc: int, rendezvous: Rendezvous, launch: int) -> tuple[str, ...]:
    """The command that starts the worker `nproc` times here; the job's file follows it.

    Each launch meets under an id of its own, so that a machine that is early for the next one does
    not join the last.
    """
    words = [sys.executable, "-m", "canary.training.torchrun", "--nproc-per-node", str(nproc)]
    if rendezvous.nnodes > 1:
        words += ["--nnodes", str(rendezvous.nnodes), "--rdzv-backend", rendezvous.backend]
        words += ["--rdzv-endpoint", str(rendezvous.endpoint)]
        words += ["--rdzv-id", f"{rendezvous.id}-{launch}"]
        if rendezvous.node_rank is not None:
            words += ["--node-rank", str(rendezvous.node_rank)]
    else:
        words.append("--standalone")
    return (*words, "-m", "canary.training.worker")


PROCESSES = re.compile(r"^--(?:nproc[-_]per[-_]node|num[-_]processes)(?:=(\d+))?$")
"""How torchrun and `accelerate launch` are asked for ranks."""


def asked_ranks(command: Sequence[str]) -> int | None:
    """Ranks that the words of a command ask for on this machine; None where they do not say."""
    for place, word in enumerate(command):
        match = PROCESSES.match(word)
        if match is None:
            continue
        value = match[1] or (command[place + 1] if place + 1 < len(command) else "")
        return int(value) if value.isdigit() else None
    return None


def fewer_than_asked(command: Sequence[str], world_size: int) -> str:
    """A line for a command that asked for several ranks and trained on one; else empty."""
    asked = asked_ranks(command)
    if asked is None or asked < 2 or world_size > 1:
        return ""
    hint = (
        "; accelerate launch --cpu starts one process, torchrun --nproc-per-node starts them all"
        if "--cpu" in command
        else ""
    )
    return f"{asked} processes were asked for, and the training ran on one{hint}"
