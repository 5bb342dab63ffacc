"""`canary matrix`: reads the file, plans, runs and answers."""

from __future__ import annotations

import contextlib
import functools
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from canary.config.output import OUTPUT_DIR
from canary.errors import MachineError, UsageError, did_you_mean, nearest, printable
from canary.machine.environment import usable_cores
from canary.machine.gpu import list_devices
from canary.matrix.attempt import Attempt
from canary.matrix.cells import Cell, cells_of
from canary.matrix.commands import CLUSTER, CPU, Place, command_of
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
from canary.matrix.places import places_of
from canary.matrix.plan import Budget, Planned, note, oldest_first, planned
from canary.matrix.running import CELLS, Entry, Matrix, alone_in, entries_of, tries_in, try_folder
from canary.record.folder import new_run_id


@dataclass(frozen=True)
class MatrixRequest:
    """What to run."""

    file: Path
    output_dir: Path | None = None
    only: tuple[str, ...] = ()
    """Cells by name; none: all."""
    collect: bool = False
    """Whether to start nothing, and judge what lies in the folder."""


@dataclass(frozen=True)
class Loaded:
    """A matrix that can start."""

    document: MatrixFile
    cells: tuple[Cell, ...]
    plan: tuple[Planned, ...]
    folder: Path
    budget: Budget
    request: MatrixRequest

    @functools.cached_property
    def marks(self) -> dict[str, str]:
        """Hashes of the cells and their configs, by the names of the cells."""
        return {one.cell.name: one.mark for one in self.plan}

    @property
    def history(self) -> Path | None:
        """The folder of the history. A cell that was started elsewhere is compared when it is
        collected."""
        if self.document.history is None or (self.is_external and not self.request.collect):
            return None
        return Path(self.document.history).absolute()

    @property
    def base(self) -> Path:
        """Folder of what all its cells share. Cells that are started one by one may run at once in
        one folder, so each has its own."""
        alone = self.is_external and not self.request.collect and len(self.cells) == 1
        return self.folder / CELLS / self.cells[0].name if alone else self.folder

    @property
    def is_whole(self) -> bool:
        """Whether all cells of the file are asked for: only then the folder gets their answer."""
        return not self.request.only

    @property
    def is_external(self) -> bool:
        """Whether something else starts the cells."""
        return isinstance(self.document.launcher, External)


def load(request: MatrixRequest) -> Loaded:
    """Read a matrix and look at each of its cells.

    Raises:
        ConfigError: the matrix or a cell's config cannot be used.
    """
    document, origins = read_matrix(request.file)
    if request.collect and not isinstance(document.launcher, External):
        raise UsageError("--collect is for launcher.kind: external", "leave it out")
    cells = _chosen(cells_of(document, origins, request.file), request)
    history = Path(document.history) if document.history else None
    plan = tuple(planned(cell, history) for cell in cells)
    if document.budget is not None:
        plan = tuple(oldest_first(plan))
        cells = tuple(one.cell for one in plan)
    name = new_run_id(document.name, datetime.now(UTC))
    folder = (request.output_dir or Path(OUTPUT_DIR) / f"matrix-{name}").absolute()
    return Loaded(document, cells, plan, folder, Budget(document.budget, plan), request)


def _chosen(cells: tuple[Cell, ...], request: MatrixRequest) -> tuple[Cell, ...]:
    """Return the cells that were asked for."""
    names = {one.name for one in cells}
    for name in request.only:
        if name not in names:
            hint = did_you_mean(nearest(name, names), f"see canary matrix {request.file} --dry-run")
            raise UsageError(f"{request.file} has no cell {printable(name)}", hint)
    return tuple(one for one in cells if not request.only or one.name in request.only)


def foreseen(loaded: Loaded) -> tuple[Planned, ...]:
    """Return the plan with what is known before it starts: cells that cannot run on this machine,
    and those that have run in the folder."""
    keys = loaded.document.launcher
    here = _local(keys) if isinstance(keys, Local) and usable_cores() else None
    return tuple(_foreseen(loaded, one, here) for one in loaded.plan)


def _foreseen(loaded: Loaded, one: Planned, here: tuple[LocalLauncher, bool] | None) -> Planned:
    numbers = tries_in(loaded.folder, one.cell)
    if numbers:
        attempt = _attempt(loaded, Place(Path()), True, one.cell, max(numbers))
        if attempt.ended() is not None and not attempt.is_of_another():
            return replace(one, state="has run in this folder")
    try:
        if here is not None and not one.problem:
            launcher, gpus = here
            launcher.require(_attempt(loaded, Place(Path()), gpus, one.cell, 1))
    except UsageError as error:
        return replace(one, problem=error.message)
    return one


def commands(loaded: Loaded) -> list[tuple[str, str]]:
    """Return each cell with the command that runs it, for whatever starts it."""
    file, folder = loaded.request.file, loaded.request.output_dir
    into = ["-o", str(folder)] if folder else []
    return [
        (one.name, shlex.join(["canary", "matrix", str(file), "--only", one.name, *into]))
        for one in loaded.cells
    ]


def run(loaded: Loaded, told: Callable[[Matrix], None]) -> list[Entry]:
    """Run all cells and return them with their outcomes."""
    document = loaded.document
    if loaded.request.collect:
        with alone_in(loaded.folder):
            return _collected(loaded)
    with contextlib.ExitStack() as held:
        held.enter_context(alone_in(loaded.base))
        launcher, gpus = _launcher(document.launcher, loaded.folder)
        # Stacks may take minutes to install: a launcher that is missing is told before.
        places = held.enter_context(places_of(loaded.base, loaded.cells, document.stacks))
        matrix = Matrix(
            loaded.folder,
            entries_of(loaded.cells),
            launcher,
            lambda cell, number: _attempt(loaded, places.of(cell), gpus, cell, number),
            functools.partial(_judged, loaded),
            document.retries,
            told=told,
            budget=loaded.budget,
        )
        entries = matrix.run()
    if document.save and loaded.history is not None:
        note(loaded.history, dict(_took(entries)), datetime.now(UTC))
    return entries


def _took(entries: Sequence[Entry]) -> Iterator[tuple[str, float | None]]:
    """Yield what each cell took that was started. One that broke says nothing about the next."""
    for one in entries:
        if one.outcome is not None and one.number:
            broke = one.outcome.verdict in ("error", "invalid")
            yield one.cell.name, None if broke else one.outcome.seconds


def _collected(loaded: Loaded) -> list[Entry]:
    """Judge the tries that lie in the folder. A cell without one has failed."""
    entries = entries_of(loaded.cells)
    for entry in entries:
        entry.state = "done"
        try:
            numbers = tries_in(loaded.folder, entry.cell)
        except MachineError as error:
            entry.outcome = Outcome("error", str(error))
            continue
        entry.number = max(numbers, default=0)
        if not numbers:
            where = loaded.folder / CELLS / entry.cell.name
            entry.outcome = Outcome("error", f"{where} is not here: did the cell run?")
            continue
        folder = try_folder(loaded.folder, entry.cell, entry.number)
        limit_s = loaded.document.timeout * 60
        asked = loaded.marks[entry.cell.name]
        attempt = Attempt(
            entry.cell.name, entry.number, folder, (), folder, {}, limit_s, asked=asked
        )
        if attempt.is_of_another():
            entry.outcome = Outcome("invalid", "it was run with another config or command")
            continue
        if (missing := attempt.missing()) is not None:
            words = f"{folder} was copied in part: {missing} is missing"
            entry.outcome = Outcome("error", words, folder)
            continue
        entry.outcome = _judged(loaded, entry.cell, attempt)
    return entries


def _judged(loaded: Loaded, cell: Cell, attempt: Attempt) -> Outcome:
    return outcome_of(cell, attempt, loaded.history, save_to=loaded.document.save)


def _launcher(keys: LauncherKeys, folder: Path) -> tuple[Launcher, bool]:
    """Return the launcher, and whether cells train on GPUs unless they say otherwise."""
    if isinstance(keys, Local):
        return _local(keys)
    if isinstance(keys, External):
        return _local(Local())
    patience = Patience(keys.longest_wait * 60, keys.poll, keys.late)
    if isinstance(keys, Slurm):
        queue = SlurmQueue(keys, folder)
        return QueueLauncher(queue, patience, keys.at_once), keys.device != CPU
    ray = RayQueue(keys, folder)
    return QueueLauncher(ray, patience, keys.at_once, most_waiting=MOST_WAITING), keys.device != CPU


def _local(keys: Local) -> tuple[LocalLauncher, bool]:
    found = [] if keys.devices == CPU else [*range(len(list_devices().found))]
    if isinstance(keys.devices, list):
        missing = sorted({*keys.devices} - {*found})
        if missing:
            raise MachineError(f"this machine has no GPU {missing[0]}", "see canary env")
        found = keys.devices
    cores = usable_cores()
    if cores is None:
        raise MachineError("cells run on this machine only on Linux", "set launcher.kind")
    return LocalLauncher(cores, found, keys.at_once), bool(found)


def _attempt(loaded: Loaded, place: Place, gpus: bool, cell: Cell, number: int) -> Attempt:
    folder = try_folder(loaded.folder, cell, number)
    keys, document = loaded.document.launcher, loaded.document
    if cell.device == CLUSTER and not isinstance(keys, Ray):
        raise UsageError("it asks for the device cluster", "use launcher.kind: ray")
    uses_gpu = gpus if cell.device is None else cell.device not in (CPU, CLUSTER)
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
        asked=loaded.marks[cell.name],
    )
