"""Commits checked out beside the user's checkout, which is not touched."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from canary.campaign.cleanup import undisturbed
from canary.errors import MachineError, UsageError
from canary.machine.git import GitMissing, run_git

NO_HOOKS = ("-c", "core.hooksPath=/dev/null", "-c", "advice.detachedHead=false")


def git(folder: Path, *arguments: str) -> str:
    """Standard output of a git command. The repository is the user's own: git may fetch what a
    partial clone lacks, with the user's own credentials, and takes the time that it needs.

    Raises:
        UsageError: git is not installed.
        MachineError: it failed; carries what it said.
    """
    try:
        done = run_git(folder, *arguments, environ=os.environ, timeout_s=None, tokens=True)
    except GitMissing as error:
        raise GitMissing("it is needed to check out two commits") from error
    if done.code != 0:
        lines = os.fsdecode(done.err).strip().splitlines()
        said = lines[-1] if lines else f"exit code {done.code}"
        raise MachineError(f"git {arguments[0]} failed: {said}")
    return os.fsdecode(done.out).strip()


def repository_of(folder: Path) -> Path:
    """The root of the repository around a folder.

    Raises:
        UsageError: it is in none.
    """
    try:
        return Path(git(folder, "rev-parse", "--show-toplevel")).resolve()
    except MachineError as error:
        raise UsageError(
            f"{folder} is not in a git repository",
            "compare two configs instead: --base-config A --head-config B",
        ) from error


def commit_of(repository: Path, ref: str) -> str:
    """The commit that a branch, tag or abbreviation means.

    Raises:
        UsageError: there is none.
    """
    try:
        return git(
            repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"
        )
    except MachineError as error:
        raise UsageError(
            f"no commit {ref!r} in {repository}",
            "fetch it first; a shallow clone holds only the newest commits",
        ) from error


def uncommitted(repository: Path) -> int:
    """Tracked files with changes that no commit holds."""
    return len(git(repository, "status", "--porcelain", "--untracked-files=no").splitlines())


def add_worktree(repository: Path, path: Path, commit: str) -> Path:
    """Checks out a commit into a folder of its own; no hook of the repository runs."""
    git(repository, *NO_HOOKS, "worktree", "add", "--quiet", "--detach", str(path), commit)
    return path


@contextlib.contextmanager
def checked_out(repository: Path, commits: Mapping[str, str]) -> Iterator[dict[str, Path]]:
    """Each commit in a worktree of its own under a scratch folder, removed at the end.

    No hook of the repository runs. Yields the worktree of each name.
    """
    scratch = Path(tempfile.mkdtemp(prefix="canary-ab-")).resolve()
    made: list[Path] = []
    try:
        for name, commit in commits.items():
            path = scratch / name
            made.append(path)
            add_worktree(repository, path, commit)
        yield {name: scratch / name for name in commits}
    finally:
        with undisturbed():
            for path in made:
                with contextlib.suppress(MachineError):
                    git(repository, "worktree", "remove", "--force", str(path))
            shutil.rmtree(scratch, ignore_errors=True)
            with contextlib.suppress(MachineError):
                git(repository, "worktree", "prune")
