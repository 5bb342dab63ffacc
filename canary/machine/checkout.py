"""Reads what git knows of a folder that may be a stranger's (see `canary.machine.git`).

Filters have names that the repository chooses: those that it defines are switched off before a
command reads files. Those of the user and the machine stay.
"""

from __future__ import annotations

from pathlib import Path

from canary.machine.git import PATIENCE_S, Ended, GitMissing, run_git

OWN_FILTERS = ("--includes", "--null", "--name-only", "--get-regexp", r"^filter\.")


class Unread(Exception):
    """Git could not tell; the text says why."""


def read_git(
    folder: Path, *arguments: str, files: bool = False, timeout_s: float = PATIENCE_S
) -> str:
    """Standard output of a git command that only reads; `files` where it reads the working tree.

    A command that shows differences needs `--no-ext-diff` and `--no-textconv` too, and one that
    reads files `--ignore-submodules=dirty`: a submodule has a configuration of its own.

    Raises:
        Unread: git is missing, failed, or took longer than `timeout_s` seconds.
    """
    settings = _own_filters_off(folder, timeout_s) if files else ()
    options = [part for setting in settings for part in ("-c", setting)]
    done = _ended(folder, timeout_s, *options, *arguments)
    if done.code != 0:
        raise _failed(done)
    return done.out.decode("utf-8", "replace")


def _ended(folder: Path, timeout_s: float, *arguments: str) -> Ended:
    try:
        done = run_git(folder, *arguments, timeout_s=timeout_s)
    except GitMissing as error:
        raise Unread(error.message) from error
    except OSError as error:
        raise Unread(f"git cannot be run: {error.strerror}") from error
    if done.code is None:
        raise Unread(f"git did not answer in {timeout_s:.0f} s")
    return done


def _failed(done: Ended) -> Unread:
    lines = done.err.decode("utf-8", "replace").strip().splitlines()
    return Unread(lines[-1] if lines else "not a git repository")


def _own_filters_off(folder: Path, timeout_s: float) -> list[str]:
    """Settings that empty the filters that the repository's own configuration defines."""
    found: set[str] = set()
    for scope in ("--local", "--worktree"):
        done = _ended(folder, timeout_s, "config", scope, *OWN_FILTERS)
        # 1: nothing is set there. Most repositories have no second scope.
        if scope == "--local" and done.code not in (0, 1):
            raise _failed(done)
        if done.code == 0:
            found |= set(done.out.decode("utf-8", "replace").split("\0"))
    keys = sorted(key for key in found if key)
    if any("=" in key for key in keys):
        raise Unread("its configuration has a filter whose name holds '='")
    return [f"{key}={'false' if key.endswith('.required') else ''}" for key in keys]
