"""`canary matrix`: reads the file, plans, runs and answers."""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from canary.config.load import load_config
from canary.config.output import OUTPUT_DIR
from canary.errors import ConfigError, MachineError, UsageError, did_you_mean, nearest, printable
from canary.machine.environment import usable_cores
from canary.machine.gpu import list_devices
from canary.machine.program import program
from canary.matrix.attempt import CHECK, CLUSTER, CPU, RUNS, Attempt
from canary.matrix.cells import Cell, cells_of
from canary.matrix.document import LauncherKeys, Local, MatrixFile, Ray, Slurm, read_matrix
from canary.matrix.local import LocalLauncher
from canary.matrix.outcomes import outcome_of
from canary.matrix.queue import Patience, QueueLauncher
from canary.matrix.ray import MOST_WAITING, RayQueue
from canary.matrix.running import CELLS, Entry, Launcher, Matrix, alone_in
from canary.matrix.slurm import SlurmQueue
from canary.record import jsonio
from canary.record.folder import new_run_id


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
    total = "1 cell" if len(cells) == 1 else f"{len(cells)} cells"
    return [*(f"{one.name:<{width}}  {one.verb}" for one in cells), total]


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
    if isinstance(keys, Local):
        return _local(keys)
    patience, gpus = Patience(keys.longest_wait * 60, keys.poll, keys.late), keys.device != CPU
    if isinstance(keys, Slurm):
        return QueueLauncher(SlurmQueue(keys, folder), patience, keys.at_once), gpus
    return QueueLauncher(RayQueue(keys), patience, keys.at_once, MOST_WAITING), gpus


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
    if cell.ranks > 1 and cell.verb not in ("run", "exec"):
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
