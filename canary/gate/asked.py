"""The canaries that the gate asks for: configs, or the cells of a matrix file."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from canary.config.load import LoadedConfig
from canary.errors import ConfigError, InputError
from canary.gate.base_config import LARGEST, Reader, load_base_config, repository_path
from canary.matrix.cells import Cell, cells_of
from canary.matrix.document import matrix_of

MOST_CELLS = 80
"""Cells of a matrix in the action. GitHub starts at most 256 jobs for one matrix, and the bootstrap
workflow starts each cell three times."""
OF_THE_REPORT = ("report", "report.html")
"""What follows the artifact's name where `action.yml` uploads the report."""
NOT_HERE = "remove that key, or run the cell with `canary matrix`"


@dataclass(frozen=True)
class Canary:
    """A config, or a config with the settings of a cell."""

    config: str
    """Its path, from the working directory."""
    cell: str = ""
    """Name of the cell; empty without a matrix."""
    settings: tuple[str, ...] = ()
    """`key=value`, as for `--set`."""

    @property
    def title(self) -> str:
        """What messages call it."""
        return f"cell {self.cell}" if self.cell else self.config

    @property
    def stem(self) -> str:
        """Its name where its config is unknown."""
        return self.cell or Path(self.config).stem


def path_in(folder: str, config: str) -> str:
    """Return the path of a config in the repository, without a check of it."""
    return posixpath.normpath(posixpath.join(folder, config))


def cells_at(read: Reader, matrix: str) -> tuple[Canary, ...] | None:
    """Return the cells of a matrix file at one commit; None if it is missing there.

    Raises:
        ConfigError: the file or a cell cannot be used.
    """
    content = read(matrix)
    if content is None:
        return None
    if len(content) > LARGEST:
        raise ConfigError(f"{matrix} is too large for a matrix", "split it")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{matrix} is not UTF-8 text", "a matrix is a YAML file") from error
    document, origins = matrix_of(text, Path(matrix))
    if document.env:
        raise ConfigError(f"{matrix} has `env`, which the action cannot use", "use its input `env`")
    cells = cells_of(document, origins, Path(matrix), MOST_CELLS)
    return tuple(_canary(cell, matrix) for cell in cells)


def _canary(cell: Cell, matrix: str) -> Canary:
    if cell.name.lower() in OF_THE_REPORT:
        message = f"cell {cell.name} in {matrix} has a name that the action uses for its report"
        raise ConfigError(message, "give it another `name`", key="name")
    refused = {
        f"verb: {cell.verb}": cell.verb != "run",
        "ref": cell.ref,
        "stack": cell.stack,
        f"nodes: {cell.nodes}": cell.nodes > 1,
        "arguments": cell.arguments,
        f"device: {cell.device}": cell.device not in (None, "cpu"),
    }
    for key, is_set in refused.items():
        if is_set:
            message = f"cell {cell.name} in {matrix} has {key}, which the action cannot use"
            raise ConfigError(message, NOT_HERE, key=key.partition(":")[0])
    settings = [*cell.settings, f"name={cell.name}"]
    settings += [f"nproc={cell.ranks}"] if cell.ranks > 1 else []
    settings += ["device=cpu"] if cell.device == "cpu" else []
    return Canary(str(cell.config), cell.name, tuple(settings))


@dataclass(frozen=True)
class Wanted:
    """A canary of the training job."""

    canary: Canary
    """As the pull request has it, if it has it."""
    base: Canary | None
    """As the base branch has it."""
    notes: tuple[str, ...] = ()


def wanted(
    configs: Sequence[str], matrix: str, head: Reader, base: Reader | None, *, in_pairs: bool
) -> list[Wanted]:
    """Return what the training job runs. The base branch says which cells; the pull request may
    change their settings, if the base is not trained beside it.

    Raises:
        ConfigError: the matrix cannot be used, or neither side has it.
    """
    if not matrix:
        return [Wanted(one, one) for one in map(Canary, configs)]
    now = cells_at(head, matrix)
    before = cells_at(base, matrix) if base is not None else None
    if now is None and before is None:
        raise ConfigError(f"no matrix at {matrix}", "check the input matrix")
    if before is None:
        return [Wanted(one, None) for one in now or ()]
    changed = {one.cell: one for one in now or ()}
    found = []
    for one in before:
        other = changed.get(one.cell)
        if other == one:
            found.append(Wanted(one, one))
        elif other is None or in_pairs:
            what = "removes this cell" if other is None else "has other settings for this cell"
            note = f"the change {what} in {matrix}; that counts once merged"
            found.append(Wanted(one, one, (note,)))
        else:
            found.append(Wanted(other, one))
    return found


def base_of(read: Reader, folder: str, canary: Canary) -> LoadedConfig | None:
    """Return a canary's config on the base branch; None if the base has no such config.

    Raises:
        ConfigError: it cannot be used.
        InputError: a cell of the base names a config that is missing there.
    """
    path = repository_path(folder, canary.config)
    base = load_base_config(read, path, canary.settings)
    if base is None and canary.cell:
        message = f"{path} of cell {canary.cell} is missing on the base branch"
        raise InputError(message, "add it there first")
    return base
