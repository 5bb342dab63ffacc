"""`canary matrix`: reads the file, plans, runs and answers."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from canary.config.output import OUTPUT_DIR
from canary.errors import MachineError
from canary.machine.gpu import list_devices
from canary.matrix.attempt import Attempt
from canary.matrix.cells import Cell, cells_of
from canary.matrix.commands import command_of
from canary.matrix.document import Local, MatrixFile, read_matrix
from canary.matrix.launcher import Launcher
from canary.matrix.launchers.local import LocalLauncher
from canary.matrix.outcomes import outcome_of
from canary.matrix.places import Places, places_of
from canary.matrix.plan import Planned, planned
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
    name = new_run_id(document.name, datetime.now(UTC))
    folder = (request.output_dir or Path(OUTPUT_DIR) / f"matrix-{name}").absolute()
    return Loaded(document, cells, plan, folder)


def run(loaded: Loaded, told: Callable[[Matrix], None]) -> list[Entry]:
    """Run all cells and return them with their outcomes."""
    document = loaded.document
    launcher, gpus = _launcher(document.launcher)
    history, saves = loaded.history, document.save
    with (
        alone_in(loaded.folder),
        places_of(loaded.folder, loaded.cells, document.stacks) as places,
    ):
        matrix = Matrix(
            loaded.folder,
            entries_of(loaded.cells),
            launcher,
            functools.partial(_attempt, loaded, places, gpus),
            lambda cell, one: outcome_of(cell, one, history, save_to=saves),
            document.retries,
            told=told,
        )
        return matrix.run()


def _launcher(keys: Local) -> tuple[Launcher, bool]:
    """Return the launcher, and whether cells train on GPUs."""
    found = [] if keys.devices == "cpu" else [*range(len(list_devices().found))]
    if isinstance(keys.devices, list):
        missing = sorted({*keys.devices} - {*found})
        if missing:
            raise MachineError(f"this machine has no GPU {missing[0]}", "see canary env")
        found = keys.devices
    cores = sorted(os.sched_getaffinity(0))
    return LocalLauncher(cores, found, keys.at_once), bool(found)


def _attempt(loaded: Loaded, places: Places, gpus: bool, cell: Cell, number: int) -> Attempt:
    folder, place = loaded.folder / CELLS / cell.name / str(number), places.of(cell)
    uses_gpu = gpus and cell.device != "cpu"
    keys = loaded.document.launcher
    return Attempt(
        cell.name,
        number,
        folder,
        command_of(cell, place, folder),
        place.folder,
        place.environment,
        loaded.document.timeout * 60,
        cores=0 if uses_gpu else keys.cores * cell.ranks,
        gpus=cell.ranks if uses_gpu else 0,
    )
