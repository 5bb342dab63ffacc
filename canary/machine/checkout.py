"""Read facts from a git repository that a stranger may control (see `canary.machine.git`).

The repository's filters are switched off before a command reads files, because a filter is a
program. Filters of the user and the machine stay.
"""

from __future__ import annotations

from pathlib import Path

from canary.machine.git import TIMEOUT_S, Ended, GitMissing, run_git

FILTER_QUERY = ("--includes", "--null", "--name-only", "--get-regexp", r"^filter\.")


class Unread(Exception):
    """Git gave no answer; the text says why."""


def read_git(
    folder: Path, *arguments: str, files: bool = False, timeout_s: float = TIMEOUT_S
) -> str:
    """Return the standard output of a git command that only reads; `files`: it reads files.

    A command that shows differences also needs `--no-ext-diff` and `--no-textconv`. One that reads
    files needs `--ignore-submodules=dirty`, because submodules have separate configurations.

    Raises:
        Unread: git is missing, failed, or took longer than `timeout_s` seconds.
    """
    settings = _filters_off(folder, timeout_s) if files else ()
    options = [part for setting in settings for part in ("-c", setting)]
    done = _run(folder, timeout_s, *options, *arguments)
    if done.code != 0:
        raise _failed(done)
    return done.out.decode("utf-8", "replace")


def _run(folder: Path, timeout_s: float, *arguments: str) -> Ended:
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


def _filters_off(folder: Path, timeout_s: float) -> list[str]:
    """Return settings that empty the filters in the repository's configuration."""
    found: set[str] = set()
    for scope in ("--local", "--worktree"):
        done = _run(folder, timeout_s, "config", scope, *FILTER_QUERY)
        # Code 1: no filter is set. Most repositories lack the second scope.
        if scope == "--local" and done.code not in (0, 1):
            raise _failed(done)
        if done.code == 0:
            found |= set(done.out.decode("utf-8", "replace").split("\0"))
    keys = sorted(key for key in found if key)
    if any("=" in key for key in keys):
        raise Unread("the repository's configuration has a filter with '=' in its name")
    return [f"{key}={'false' if key.endswith('.required') else ''}" for key in keys]
