"""Scratch folders, and the removal of those that a killed process left.

A process holds a lock in each of its folders. The kernel gives it up when the process ends, also on
SIGKILL. So a folder whose lock can be taken has no owner any more, whatever runs under its number.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from canary.machine.git import GitMissing, run_git

LOCK = ".rlhf-canary-owner"
"""The file that is locked. It has the repository whose worktrees are in the folder, if any."""
PREFIX = "canary-"


def new_scratch(name: str, repository: Path | None = None) -> Path:
    """Return a new folder in the temporary folder, locked until this process ends. What killed
    processes left of the repository, in any temporary folder, is removed first.

    Raises:
        OSError: it cannot be made.
    """
    if repository is not None:
        _remove_left(above for tree in _worktrees(repository) for above in tree.parents)
    scratch = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{name}-")).resolve()
    hidden = scratch / f"{LOCK}.new"
    handle = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    with contextlib.suppress(OSError):  # A file system without locks: the folder may be left.
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(handle, os.fsencode(repository or ""))
        # Nobody sees it unlocked. The descriptor stays open: it holds the lock.
        hidden.rename(scratch / LOCK)
    return scratch


def remove_scratch(scratch: Path, repository: Path | None = None) -> None:
    """Remove a scratch folder, and git's notes of the worktrees in it, as far as possible."""
    if repository is not None:
        for tree in _worktrees(repository):
            if tree.is_relative_to(scratch):
                # Twice: git locks a worktree while it makes it.
                _git(repository, "remove", "--force", "--force", str(tree))
    shutil.rmtree(scratch, ignore_errors=True)
    if repository is not None:
        _git(repository, "prune")


def remove_left_scratches() -> None:
    """Remove the scratch folders of this user's processes that were killed."""
    with contextlib.suppress(OSError):
        _remove_left(Path(tempfile.gettempdir()).resolve().iterdir())


def _remove_left(folders: Iterable[Path]) -> None:
    """Remove those of the folders that killed processes of this user left."""
    for scratch in folders:
        # An error: it is no scratch folder, or its owner lives.
        with contextlib.suppress(OSError), contextlib.ExitStack() as opened:
            seen = scratch.lstat()
            shared = scratch.is_symlink() or seen.st_uid != os.getuid() or seen.st_mode & 0o077
            if shared or not scratch.name.startswith(PREFIX):
                continue
            handle = os.open(scratch / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
            opened.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            named = os.fsdecode(os.read(handle, 4096))
            remove_scratch(scratch, Path(named) if named else None)


def _worktrees(repository: Path) -> list[Path]:
    lines = _git(repository, "list", "--porcelain").splitlines()
    return [Path(line.removeprefix("worktree ")) for line in lines if line.startswith("worktree ")]


def _git(repository: Path, *words: str) -> str:
    with contextlib.suppress(GitMissing, OSError):
        return os.fsdecode(run_git(repository, "worktree", *words, timeout_s=None).out)
    return ""
