"""The workbench of commits: a fresh worktree, environment and cache for each commit that runs."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from canary.bisect.caches import own_caches
from canary.bisect.commits import SHORT, History
from canary.bisect.model import CannotRun, State
from canary.campaign.commit_side import config_in, folder_in, own_python
from canary.campaign.side import Side, undisturbed
from canary.campaign.worktrees import add_worktree, git
from canary.config.load import load_config
from canary.config.schema import CanaryConfig
from canary.errors import MachineError, UsageError
from canary.machine.scratch import new_scratch, remove_scratch

PYTHON = re.compile(r"python[\d.]*")
MOST_KEPT = 4
"""Built commits besides both ends; one that is needed again later is built again."""


@dataclass(frozen=True)
class Recipe:
    """How a commit is run."""

    here: Path
    """The user's working directory, inside the repository."""
    config: Path
    """Absolute path of the config, as the user named it."""
    everywhere: bool
    """Every commit runs that file: it is outside the repository, or neither end has it."""
    setup: str | None
    settings: tuple[str, ...]
    folder: Path
    """Output folder of the bisect."""
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


@dataclass
class CommitBench:
    """Checks out and sets up commits in a scratch folder; see `Workbench`."""

    history: History
    recipe: Recipe
    _scratch: Path | None = field(default=None, init=False)
    _made: dict[State, Side] = field(default_factory=dict, init=False)
    """Built sides, the last used one at the end."""

    def side(self, state: State) -> Side:
        """Return a commit's code and Python; see `Workbench`."""
        if state in self._made:
            self._made[state] = self._made.pop(state)
            return self._made[state]
        ends = (0, self.history.bad_state)
        others = [one for one in self._made if one not in ends]
        if state not in ends and len(others) >= MOST_KEPT:
            self._remove(others[0])
        try:
            side = self._build(state)
        except BaseException:
            with undisturbed():
                self._remove(state)
            raise
        self._made[state] = side
        return side

    def label(self, state: State) -> str:
        """Return the short hash of a state's commit."""
        return self.history.sha(state)[:SHORT]

    def name(self, suspect: int) -> str:
        """Return the short hash and subject of a suspect."""
        commit = self.history.commits[suspect]
        return f"{commit.short} {commit.subject}"

    def close(self) -> None:
        """Remove the scratch folder with all worktrees, and git's notes of them."""
        if self._scratch is not None:
            with undisturbed():
                remove_scratch(self._scratch, self.history.repository)
            self._scratch = None
            self._made.clear()

    def _place(self, state: State) -> Path:
        if self._scratch is None:
            self._scratch = new_scratch("bisect", self.history.repository)
        return self._scratch / self.label(state)

    def _build(self, state: State) -> Side:
        place, label, recipe = self._place(state), self.label(state), self.recipe
        repository = self.history.repository
        place.mkdir(exist_ok=True)
        tree = add_worktree(repository, place / "tree", self.history.sha(state))
        # From here on, what fails is the commit's own fault.
        try:
            config = recipe.config
            if not recipe.everywhere:
                config = config_in(tree, repository, recipe.config, "commit", label, _lacks)
            loaded = load_config(config, recipe.settings).config
            if recipe.setup:
                require_plain_python(loaded)
            environ = own_caches(place / "cache", recipe.environ, command=_is_command(loaded))
            folder = folder_in(tree, repository, recipe.here)
            log = recipe.folder / f"setup-{label}.log"
            python, environment = own_python(
                "commit", tree, repository, folder, recipe.setup, environ, log
            )
        except UsageError as error:
            raise CannotRun(str(error)) from error
        except MachineError as error:
            raise CannotRun(error.message.removeprefix("commit: ")) from error
        output = recipe.folder / label
        return Side("commit", label, config, folder, python, environment, output, recipe.settings)

    def _remove(self, state: State) -> None:
        self._made.pop(state, None)
        if self._scratch is not None:
            place = self._scratch / self.label(state)
            with contextlib.suppress(MachineError):
                git(self.history.repository, "worktree", "remove", "--force", str(place / "tree"))
            shutil.rmtree(place, ignore_errors=True)


def require_plain_python(config: CanaryConfig) -> None:
    """Raise UsageError if a config's command names the Python of one place, which is never that of
    a commit's own environment."""
    first = config.command[0] if config.command else ""
    if Path(first).is_absolute() and PYTHON.fullmatch(Path(first).name):
        raise UsageError(
            f"`command` begins with {first}: it would not use the packages under test",
            "write `python` there",
        )


def _lacks(name: Path) -> Path:
    raise UsageError(f"{name} is not in this commit")


def _is_command(config: CanaryConfig) -> bool:
    return config.training_type in ("exec", "custom")
