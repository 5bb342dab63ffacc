"""`canary matrix`: reads the file, plans, runs and answers."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from canary.config.output import OUTPUT_DIR
from canary.errors import MachineError, UsageError
from canary.machine.gpu import list_devices
from canary.matrix.attempt import Attempt
from canary.matrix.cells import Cell, cells_of
from canary.matrix.commands import CLUSTER, CPU, command_of
from canary.matrix.document import (
    External,
    LauncherKeys,
    Local,
    MatrixFile,
    Ray,
    Slurm,
    read_matrix,
)
from canary.matrix.launcher import Launcher
from canary.matrix.launchers.local import LocalLauncher
from canary.matrix.launchers.queue import Patience, QueueLauncher
from canary.matrix.launchers.ray import MOST_WAITING, RayQueue
from canary.matrix.launchers.slurm import SlurmQueue
from canary.matrix.outcomes import Outcome, outcome_of
from canary.matrix.places import Places, places_of
from canary.matrix.plan import Budget, Planned, oldest_first, planned
from canary.matrix.running import CELLS, Entry, Matrix, alone_in, entries_of
from canary.record.folder import new_run_id


@dataclass(frozen=True)
class MatrixRequest:
    """What to run."""

    file: Path
    output_dir: Path | None = None


@dataclass(frozen=True)
class Loaded:
    """A matrix that can start."""

    document: MatrixFile
    cells: tuple[Cell, ...]
    plan: tuple[Planned, ...]
    folder: Path
    budget: Budget

    @property
    def history(self) -> Path | None:
        """The folder of the history."""
        return Path(self.document.history).absolute() if self.document.history else None


def load(request: MatrixRequest) -> Loaded:
    """Read a matrix and look at each of its cells.

    Raises:
        ConfigError: the matrix or a cell's config cannot be used.
    """
    document, origins = read_matrix(request.file)
    cells = cells_of(document, origins, request.file)
    history = Path(document.history) if document.history else None
    plan = tuple(planned(cell, history) for cell in cells)
    if document.budget is not None:
        plan = tuple(oldest_first(plan))
        cells = tuple(one.cell for one in plan)
    name = new_run_id(document.name, datetime.now(UTC))
    folder = (request.output_dir or Path(OUTPUT_DIR) / f"matrix-{name}").absolute()
    return Loaded(document, cells, plan, folder, Budget(document.budget, plan))


def run(loaded: Loaded, told: Callable[[Matrix], None]) -> list[Entry]:
    """Run all cells and return them with their outcomes."""
    document = loaded.document
    with (
        alone_in(loaded.folder),
        places_of(loaded.folder, loaded.cells, document.stacks) as places,
    ):
        launcher, gpus = _launcher(document.launcher, loaded.folder)
        matrix = Matrix(
            loaded.folder,
            entries_of(loaded.cells),
            launcher,
            functools.partial(_attempt, loaded, places, gpus),
            functools.partial(_judged, loaded),
            document.retries,
            told=told,
            budget=loaded.budget,
        )
        return matrix.run()


def _judged(loaded: Loaded, cell: Cell, attempt: Attempt) -> Outcome:
    return outcome_of(cell, attempt, loaded.history, save_to=loaded.document.save)


def _launcher(keys: LauncherKeys, folder: Path) -> tuple[Launcher, bool]:
    """Return the launcher, and whether cells train on GPUs unless they say otherwise."""
    if isinstance(keys, Local):
        return _local(keys)
    if isinstance(keys, External):
        raise UsageError("launcher.kind: external starts nothing", "add --collect, or --only CELL")
    patience = Patience(keys.longest_wait * 60, keys.poll, keys.late)
    if isinstance(keys, Slurm):
        queue = SlurmQueue(keys, folder)
        return QueueLauncher(queue, patience, keys.at_once), keys.device != CPU
    ray = RayQueue(keys, folder)
    return QueueLauncher(ray, patience, keys.at_once, most_waiting=MOST_WAITING), keys.device != CPU


def _local(keys: Local) -> tuple[Launcher, bool]:
    found = [] if keys.devices == CPU else [*range(len(list_devices().found))]
    if isinstance(keys.devices, list):
        missing = sorted({*keys.devices} - {*found})
        if missing:
            raise MachineError(f"this machine has no GPU {missing[0]}", "see canary env")
        found = keys.devices
    cores = sorted(os.sched_getaffinity(0))
    return LocalLauncher(cores, found, keys.at_once), bool(found)


def _attempt(loaded: Loaded, places: Places, gpus: bool, cell: Cell, number: int) -> Attempt:
    folder, place = loaded.folder / CELLS / cell.name / str(number), places.of(cell)
    keys, document = loaded.document.launcher, loaded.document
    uses_gpu = gpus and cell.device not in (CPU, CLUSTER)
    cores = 1 if isinstance(keys, External) else keys.cores
    if isinstance(keys, Local):
        # A process that trains on the CPU has cores of its own; one on a GPU shares them.
        cores = 0 if uses_gpu else cores * cell.ranks
    wanted = cell.device or (keys.device if isinstance(keys, Slurm | Ray) else None)
    return Attempt(
        cell.name,
        number,
        folder,
        command_of(cell, place, folder),
        place.folder,
        {**document.env, **place.environment},
        document.timeout * 60,
        cores=cores,
        gpus=cell.ranks if uses_gpu else 0,
        nodes=cell.nodes,
        device=None if wanted == "gpu" else wanted,
    )
