"""Reads what git knows of a folder that may be a stranger's: git runs no program that the
repository's own configuration names.

Hooks, pagers, credential helpers and the file system monitor are switched off by name; nothing is
fetched, so no transport runs. Filters have names that the repository chooses: those that it defines
are switched off before a command reads files. Those of the user and the machine stay.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

PATIENCE_S = 20.0
OFF = (
    "core.fsmonitor=",
    f"core.hooksPath={os.devnull}",
    "core.pager=cat",
    "core.askPass=",
    "credential.helper=",
    "log.showSignature=false",
    "status.submoduleSummary=false",
)
SURROUNDINGS = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
"""A git before 2.44 knows no `GIT_NO_LAZY_FETCH`; `GIT_ALLOW_PROTOCOL` stops its fetching."""
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
    try:
        settings = (*OFF, *(_own_filters_off(folder, timeout_s) if files else ()))
        options = [part for setting in settings for part in ("-c", setting)]
        return _run(folder, timeout_s, "--no-pager", *options, *arguments)
    except FileNotFoundError as error:
        raise Unread("git is not installed") from error
    except OSError as error:
        raise Unread(f"git cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise Unread(f"git did not answer in {timeout_s:.0f} s") from error
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode("utf-8", "replace").strip().splitlines()
        raise Unread(lines[-1] if lines else "not a git repository") from error


def _own_filters_off(folder: Path, timeout_s: float) -> list[str]:
    """Settings that empty the filters that the repository's own configuration defines."""
    found: set[str] = set()
    for scope in ("--local", "--worktree"):
        try:
            found |= set(_run(folder, timeout_s, "config", scope, *OWN_FILTERS).split("\0"))
        except subprocess.CalledProcessError as error:
            # 1: nothing is set there. Most repositories have no second scope.
            if scope == "--local" and error.returncode != 1:
                raise
    keys = sorted(key for key in found if key)
    if any("=" in key for key in keys):
        raise Unread("its configuration has a filter whose name holds '='")
    return [f"{key}={'false' if key.endswith('.required') else ''}" for key in keys]


def _run(folder: Path, timeout_s: float, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        capture_output=True,
        check=True,
        timeout=timeout_s,
        env=os.environ | SURROUNDINGS,
    )
    return done.stdout.decode("utf-8", "replace")
