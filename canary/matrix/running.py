"""Reads a matrix, runs its cells: starts what fits, gathers what ended, and goes on after a kill.

What was done is read from the folders of the tries (`attempt.py`), so there is nothing to lose.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from canary.campaign.side import undisturbed
from canary.config.load import load_config
from canary.config.output import OUTPUT_DIR
from canary.errors import (
    CanaryError,
    ConfigError,
    MachineError,
    UsageError,
    counted,
    did_you_mean,
    nearest,
    printable,
)
from canary.machine.environment import usable_cores
from canary.machine.gpu import list_devices
from canary.machine.program import program
from canary.matrix.attempt import CHECK, CLUSTER, CPU, RUNS, Attempt
from canary.matrix.cells import Cell, cells_of
from canary.matrix.document import LauncherKeys, Local, MatrixFile, Ray, Slurm, read_matrix
from canary.matrix.local import LocalLauncher
from canary.matrix.outcomes import Outcome, Verdict, outcome_of
from canary.matrix.queue import QueueLauncher
from canary.matrix.ray import RayQueue
from canary.matrix.slurm import SlurmQueue
from canary.record import jsonio
from canary.record.folder import new_run_id
from canary.record.runs import begin_campaign
from canary.record.strangers import link_in

CELLS, LOCK = "cells", "matrix.lock"
LOOK_S = 1.0
"""Longest pause between two polls."""
Launcher = LocalLauncher | QueueLauncher
"""Starts tries. All it knows of them is on disk or in the system that it asks, so that another
process can go on."""


@dataclass
class Entry:
    """A cell and how it goes."""

    cell: Cell
    outcome: Outcome | None = None
    """None until it is done."""
    attempt: Attempt | None = None
    """Its try, while that runs."""


@dataclass
class Matrix:
    """The cells of one matrix in a folder."""

    folder: Path
    entries: list[Entry]
    launcher: Launcher
    planned: Callable[[Cell], Attempt]
    """Returns the try of a cell; an error says why there is no place for it."""
    judge: Callable[[Cell, Attempt], Outcome]
    told: Callable[[Matrix], None] = lambda matrix: None
    """Called at least once a second."""

    def run(self) -> list[Entry]:
        """Run all cells that have not ended; return them all."""
        try:
            self._found_again()
            while any(entry.outcome is None for entry in self.entries):
                self._start()
                ended = self._gather()
                self.told(self)
                if not ended:
                    self.launcher.wait(LOOK_S)
        except BaseException:  # Ctrl-C must not leave a cell running: the next start runs it again.
            with undisturbed():
                self.launcher.cancel()
                for entry in self.entries:
                    if entry.attempt is not None and not entry.attempt.is_running():
                        entry.attempt.cleared()
            raise
        return self.entries

    def _found_again(self) -> None:
        """Take up the tries of earlier processes."""
        for entry in self.entries:
            try:
                attempt = self.planned(entry.cell)
                link = link_in(attempt.folder, self.folder)
                if link is not None:
                    hint = "start the matrix in another folder with -o"
                    raise MachineError(f"{link} is a link", hint)
                if not attempt.folder.exists():
                    continue
                if attempt.is_of_another():
                    words = "it ran in this folder with another config or command"
                    where = f"cells/{entry.cell.name}"
                    hint = f"choose another folder with -o, or remove {where} to run it again"
                    raise UsageError(words, hint)
            except (UsageError, MachineError) as error:
                self._refused(entry, error)
                continue
            over = attempt.ended() is not None or attempt.gave_up() is not None
            if not over and attempt.is_running():
                entry.attempt = attempt
                self.told(self)  # Before the wait for it.
                entry.attempt = None
            if not over and self.launcher.adopt(attempt):
                entry.attempt = attempt
            elif over or attempt.ended() is not None:
                self._ended(entry, attempt)
            elif not attempt.has_begun():
                attempt.cleared()
            else:
                attempt.give_up("its process is gone, and left no exit code")
                self._ended(entry, attempt)

    def _start(self) -> None:
        """Start cells until there is no place for one."""
        for entry in self.entries:
            if entry.outcome is not None or entry.attempt is not None:
                continue
            try:
                attempt = self.planned(entry.cell)
                if not self.launcher.start(attempt):
                    break
            except (UsageError, MachineError) as error:
                self._refused(entry, error)
            else:
                entry.attempt = attempt

    @staticmethod
    def _refused(entry: Entry, error: CanaryError) -> None:
        verdict: Verdict = "invalid" if isinstance(error, UsageError) else "error"
        entry.outcome = Outcome(verdict, str(error))

    def _gather(self) -> int:
        """Judge the tries that ended."""
        count = 0
        for attempt in self.launcher.poll():
            entry = next(one for one in self.entries if one.cell.name == attempt.cell)
            self._ended(entry, attempt)
            count += 1
        return count

    def _ended(self, entry: Entry, attempt: Attempt) -> None:
        entry.outcome, entry.attempt = self.judge(entry.cell, attempt), None

    @property
    def running(self) -> list[Entry]:
        """Cells that were started and have not ended."""
        return [entry for entry in self.entries if entry.attempt is not None]


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Make the folder of a matrix, and let no other process run it within the block.

    Raises:
        UsageError: another process runs it.
        MachineError: it cannot be written.
    """
    try:
        begin_campaign(folder)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise MachineError(
            f"cannot write {folder}: {error.strerror or error}", "choose another folder with -o"
        ) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                f"another process runs the matrix in {folder}",
                "wait for it, or choose another folder with -o",
            ) from error
        yield
    finally:
        os.close(lock)


@dataclass(frozen=True)
class Loaded:
    """A matrix that can start."""

    document: MatrixFile
    cells: Mapping[Cell, str]
    """With a hash of each and its config."""
    folder: Path

    @property
    def history(self) -> Path | None:
        """The folder of the history."""
        return Path(self.document.history).absolute() if self.document.history else None


def load(file: Path, output_dir: Path | None = None, only: Sequence[str] = ()) -> Loaded:
    """Read a matrix and look at each of its cells. `only`: cells by name; none: all.

    Raises:
        ConfigError: the matrix or a cell's config cannot be used.
    """
    document, origins = read_matrix(file)
    cells = cells_of(document, origins, file)
    names = {one.name for one in cells}
    for name in only:
        if name not in names:
            hint = did_you_mean(nearest(name, names), f"see canary matrix {file} --dry-run")
            raise UsageError(f"{file} has no cell {printable(name)}", hint)
    marked = {one: mark_of(one) for one in cells if not only or one.name in only}
    name = new_run_id(document.name, datetime.now(UTC))
    folder = (output_dir or Path(OUTPUT_DIR) / f"matrix-{name}").absolute()
    return Loaded(document, marked, folder)


def mark_of(cell: Cell) -> str:
    """Return a hash of a cell and its config.

    Raises:
        ConfigError: its config cannot be used; names the cell.
    """
    config = None
    if cell.config is not None:
        try:
            loaded = load_config(Path(cell.config), cell.settings)
        except ConfigError as error:
            message = f"cell {cell.name}: {error.message.replace(' in --set', '')}"
            raise ConfigError(message, error.hint, file=error.file, key=error.key) from error
        config = loaded.config.model_dump(mode="json")
    return hashlib.sha256(jsonio.dumps([asdict(cell), config]).encode()).hexdigest()


def plan_lines(cells: Collection[Cell]) -> list[str]:
    """Return the plan as lines of text."""
    width = max(len(one.name) for one in cells)
    return [*(f"{one.name:<{width}}  {one.verb}" for one in cells), counted(len(cells), "cell")]


def run(loaded: Loaded, told: Callable[[Matrix], None]) -> list[Entry]:
    """Run all cells and return them with their outcomes."""
    document = loaded.document
    with alone_in(loaded.folder):
        launcher, gpus = _launcher(document.launcher, loaded.folder)
        matrix = Matrix(
            loaded.folder,
            [*map(Entry, loaded.cells)],
            launcher,
            functools.partial(_attempt, loaded, gpus),
            lambda cell, one: outcome_of(cell, one, loaded.history, save_to=document.save),
            told,
        )
        return matrix.run()


def _launcher(keys: LauncherKeys, folder: Path) -> tuple[Launcher, bool]:
    """Return the launcher, and whether cells train on GPUs unless they say otherwise."""
    match keys:
        case Local():
            return _local(keys)
        case Slurm():
            return QueueLauncher(SlurmQueue(keys, folder), keys), keys.device != CPU
        case Ray():
            return QueueLauncher(RayQueue(keys), keys), keys.device != CPU


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


def _attempt(loaded: Loaded, gpus: bool, cell: Cell) -> Attempt:
    """Return a try of a cell.

    Raises:
        UsageError: its stack has no Python, or the launcher no such device.
    """
    folder = loaded.folder / CELLS / cell.name
    keys, document = loaded.document.launcher, loaded.document
    if cell.device == CLUSTER and not isinstance(keys, Ray):
        raise UsageError("it asks for the device cluster", "use launcher.kind: ray")
    uses_gpu = gpus if cell.device is None else cell.device not in (CPU, CLUSTER)
    cores = keys.cores
    if isinstance(keys, Local):
        # A process that trains on the CPU has cores of its own; one on a GPU shares them.
        cores = 0 if uses_gpu else cores * cell.ranks
    wanted = cell.device or (None if isinstance(keys, Local) else keys.device)
    python, environment = _python(document, cell.stack)
    return Attempt(
        cell.name,
        folder,
        command_of(cell, python, folder),
        Path.cwd(),
        {**document.env, **environment},
        document.timeout * 60,
        cores=cores,
        gpus=cell.ranks if uses_gpu else 0,
        device=None if wanted == "gpu" else wanted,
        asked=loaded.cells[cell],
    )


def _python(document: MatrixFile, stack: str | None) -> tuple[Path, Mapping[str, str]]:
    """Return the Python of a stack and its variables."""
    if stack is None:
        return Path(sys.executable), {}
    python = Path(document.stacks[stack].python).absolute()
    if not os.access(python, os.X_OK):
        raise UsageError(f"stacks.{stack}.python: no program at {python}", "install it")
    path = f"{python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return python, {"PATH": path}


def command_of(cell: Cell, python: Path, folder: Path) -> tuple[str, ...]:
    """Return the words that run a cell. `folder`: of the try."""
    into = CHECK if cell.verb == "check" else RUNS
    words = [*program(python), cell.verb, "--quiet", "--output-dir", str(folder / into)]
    settings = [*cell.settings]
    if cell.verb in ("run", "exec"):
        settings.append(f"name={cell.name}")  # The history has a drawer for each name.
    if cell.verb == "run" and cell.ranks > 1:
        words += ["--nproc", str(cell.ranks)]
    if cell.ranks > 1 and cell.verb not in ("run", "exec") and not cell.command:
        settings.append(f"nproc={cell.ranks}")
    if cell.device == CPU:
        settings.append("device=cpu")
    words += [word for setting in settings for word in ("--set", setting)]
    words += cell.arguments
    if cell.verb == "exec" or cell.command:
        words += [*(["--config", cell.config] if cell.config else []), "--", *cell.command]
    elif cell.config:
        words.append(cell.config)
    return tuple(words)
