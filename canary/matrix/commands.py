"""The command that runs a cell."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from canary.machine.program import program
from canary.matrix.attempt import LEFT
from canary.matrix.cells import Cell

RUNS, CHECK, AB, NOISE = LEFT
CPU, CLUSTER = "cpu", "cluster"
"""Values of `device`: no GPU; all of a Ray cluster, which the cell divides by itself."""


@dataclass(frozen=True)
class Place:
    """Where the code of a cell lies: the working folder, or a checkout; with its Python."""

    folder: Path
    python: Path = Path(sys.executable)
    environment: Mapping[str, str] = field(default_factory=dict)


def command_of(cell: Cell, place: Place, folder: Path) -> tuple[str, ...]:
    """Return the words that run a cell. `folder`: of the try."""
    return (*program(place.python), cell.verb, *_arguments(cell, folder), *_what(cell))


def _what(cell: Cell) -> Sequence[str]:
    if cell.verb == "exec" or (cell.verb == "check" and cell.command):
        config = ["--config", cell.config] if cell.config else []
        return [*config, "--", *cell.command]
    return [cell.config] if cell.config else []


def _arguments(cell: Cell, folder: Path) -> list[str]:
    words = ["--quiet"]
    settings = [*cell.settings]
    if cell.verb in ("run", "exec", "calibrate"):
        words += ["--output-dir", str(folder / RUNS)]
        # The history has a drawer for each name.
        settings.append(f"name={cell.name}")
    elif cell.verb == "check":
        words += ["--output-dir", str(folder / CHECK)]
    elif cell.verb == "ab":
        words += ["--output-dir", str(folder / AB)]
    if cell.verb == "calibrate":
        words += ["--output", str(folder / NOISE)]
    if cell.verb == "run" and cell.ranks > 1:
        words += ["--nproc", str(cell.ranks)]
    if cell.verb == "run" and cell.nodes > 1:
        words += ["--nnodes", str(cell.nodes)]
    if cell.ranks > 1 and cell.verb not in ("run", "exec"):
        settings.append(f"nproc={cell.ranks}")
    if cell.device == CPU:
        settings.append("device=cpu")
    for setting in settings:
        words += ["--set", setting]
    return [*words, *cell.arguments]
