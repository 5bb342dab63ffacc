"""What a side needs to run one commit: its config, its Python, its own code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from canary.campaign.environments import own_code_first, own_environment, refuse_foreign_code
from canary.errors import UsageError


def config_in(
    tree: Path,
    repository: Path,
    given: Path,
    role: str,
    label: str,
    lacking: Callable[[Path], Path] | None = None,
) -> Path:
    """Return the config that a commit runs: its own file, or `given` outside the repository.

    Args:
        tree: the commit's worktree.
        repository: root of the user's checkout.
        given: absolute path of the config that the user named.
        role: name of the side, for messages.
        label: commit, for messages.
        lacking: gets the file's name in the repository if the commit lacks it, and returns the file
            to use. None: that is an error.

    Raises:
        UsageError: the commit lacks the file.
    """
    if not given.is_relative_to(repository):
        return given
    name = given.relative_to(repository)
    config = tree / name
    if config.exists():
        return config
    if lacking is None:
        raise UsageError(
            f"{name} is not in {role} ({label})",
            "commit it there first, or keep the config outside the repository",
        )
    return lacking(name)


def folder_in(tree: Path, repository: Path, here: Path) -> Path:
    """Return the worktree's folder for the user's working directory; its root if it has none."""
    folder = tree / here.relative_to(repository)
    return folder if folder.is_dir() else tree


def own_python(
    role: str,
    tree: Path,
    repository: Path,
    folder: Path,
    setup: str | None,
    base: Mapping[str, str],
    log: Path,
) -> tuple[Path, dict[str, str]]:
    """Return the Python of a commit and its environment variables, after `setup`.

    Raises:
        UsageError: the commit would import code of the user's checkout.
        MachineError: setup failed.
    """
    if setup:
        python, environment = own_environment(role, tree.parent, folder, setup, base, log)
    else:
        python, environment = Path(sys.executable), own_code_first(repository, tree, base)
    refuse_foreign_code(role, python, folder, environment, repository)
    return python, environment
