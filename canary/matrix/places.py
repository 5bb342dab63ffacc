"""Where the code of a cell lies: the working folder, or a checkout of its commit; and its Python.

Checkouts and environments of a matrix stay in its folder until all cells have ended: it may be
killed, and go on with them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from canary.campaign.commit_side import folder_in
from canary.campaign.environments import (
    existing_environment,
    own_code_first,
    own_environment,
    refuse_foreign_code,
)
from canary.campaign.worktrees import add_worktree, commit_of, git, repository_of
from canary.errors import CanaryError, MachineError, UsageError
from canary.matrix.cells import Cell
from canary.matrix.commands import Place
from canary.matrix.document import Stack

CHECKOUTS, STACKS, READY = "checkouts", "stacks", "ready"


class Places:
    """Makes the place of each cell once, before the first one starts."""

    def __init__(self, folder: Path, stacks: Mapping[str, Stack]) -> None:
        self._folder, self._stacks = folder, stacks
        self._here = Path.cwd()
        self._repository: Path | None = None
        self._made: dict[tuple[str | None, str | None], Place] = {}
        self._failed: dict[tuple[str | None, str | None], CanaryError] = {}

    def make(self, cells: tuple[Cell, ...]) -> None:
        """Check out the commits and install the stacks of all cells."""
        for cell in cells:
            with contextlib.suppress(UsageError, MachineError):
                self.of(cell)

    def of(self, cell: Cell) -> Place:
        """Return where a cell runs.

        Raises:
            UsageError: no such commit, or its stack has no Python.
            MachineError: the setup of its stack failed.
        """
        key = cell.ref, cell.stack
        if key in self._failed:
            raise self._failed[key]
        if key not in self._made:
            try:
                self._made[key] = self._place(cell.ref, cell.stack)
            except (UsageError, MachineError) as error:
                self._failed[key] = error
                raise
        return self._made[key]

    def _place(self, ref: str | None, stack: str | None) -> Place:
        python, environment = self._python(stack)
        if ref is None:
            return Place(self._here, python, environment)
        if self._repository is None:
            try:
                self._repository = repository_of(self._here)
            except UsageError as error:
                hint = "start the matrix in the repository, or leave ref out"
                raise UsageError(error.message, hint) from error
        tree = self._checkout(self._repository, ref)
        folder = folder_in(tree, self._repository, self._here.resolve())
        environment = own_code_first(self._repository, tree, {**os.environ, **environment})
        refuse_foreign_code(f"ref {ref}", python, folder, environment, self._repository)
        return Place(folder, python, environment)

    def _checkout(self, repository: Path, ref: str) -> Path:
        commit = commit_of(repository, ref)
        tree = self._folder / CHECKOUTS / commit[:12]
        if not (tree / ".git").exists():
            tree.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(tree, ignore_errors=True)
            git(repository, "worktree", "prune")
            add_worktree(repository, tree, commit)
        return tree

    def _python(self, stack: str | None) -> tuple[Path, Mapping[str, str]]:
        """Return the Python of a stack and its variables, after its setup."""
        keys = None if stack is None else self._stacks[stack]
        if stack is None or keys is None or (keys.python is None and keys.setup is None):
            return Path(sys.executable), {}
        if keys.python is not None:
            python = (self._here / keys.python).absolute()
            if not os.access(python, os.X_OK):
                raise UsageError(f"stacks.{stack}.python: no program at {python}", "install it")
            path = f"{python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
            return python, {"PATH": path}
        assert keys.setup is not None
        scratch = self._folder / STACKS / stack
        if (scratch / READY).exists():
            return existing_environment(stack, scratch, os.environ)
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        log = scratch / "setup.log"
        made = own_environment(stack, scratch, self._here, keys.setup, os.environ, log)
        (scratch / READY).touch()
        return made

    def remove(self) -> None:
        """Remove checkouts and environments."""
        for tree in (self._folder / CHECKOUTS).glob("*"):
            with contextlib.suppress(MachineError):
                git(self._repository or self._here, "worktree", "remove", "--force", str(tree))
        for name in (CHECKOUTS, STACKS):
            shutil.rmtree(self._folder / name, ignore_errors=True)
        if self._repository is not None:
            with contextlib.suppress(MachineError):
                git(self._repository, "worktree", "prune")


@contextlib.contextmanager
def places_of(
    folder: Path, cells: tuple[Cell, ...], stacks: Mapping[str, Stack]
) -> Iterator[Places]:
    """Make all places; remove them if the block ends without an error. After an error or Ctrl-C
    they stay for the next start."""
    made = Places(folder, stacks)
    made.make(cells)
    yield made
    made.remove()
