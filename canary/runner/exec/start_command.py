"""Records how the training process was started, so that a further launch can start it alone.

The rest of a shell script then runs only once. Loaded in each Python process of the user's command:
standard library only, and little of it.
"""
# ruff: noqa: PTH109, PTH110, PTH115, PTH116, PTH118, PTH123
# pathlib costs an import in every process of the command

from __future__ import annotations

import os
import stat
import sys
from typing import Any, NamedTuple

MARKS = "_RLHF_CANARY_MARKS"
PARENT = "_RLHF_CANARY_PARENT"
STDIN = "_RLHF_CANARY_STDIN"
"""The environment variable that names the pipe which the canary gave the command as stdin."""
OURS = "_RLHF_CANARY_"
"""Prefix of the variables that each launch gets anew."""
GIVEN = ""
"""The process reads the standard input that the canary gave to the command."""


class Start(NamedTuple):
    """How one process was started."""

    words: list[str]
    cwd: str
    changed: dict[str, str | None]
    """Variables that differ from the canary's environment; None for a removed one."""
    stdin: str | None
    """The file that it reads, or `GIVEN`; None if another program writes to it."""


def keep_start(site: str) -> None:
    """Write how this process was started, if known. `site`: the canary's folder on PYTHONPATH."""
    parent, marks = os.environ.get(PARENT, ""), os.environ.get(MARKS, "")
    try:
        before = _environment(f"/proc/{parent}/environ")
        start = Start(_words(), os.getcwd(), _changed(before, site), _stdin())
        file = os.path.join(marks, f"start.{os.getpid()}")
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", errors="surrogateescape") as stream:
            stream.write(repr(tuple(start)))
    except OSError:
        return


def read_start(marks: str, root: int) -> Start | None:
    """Return how the process `root` was started, None if it is not known."""
    import ast  # slow to import, and users' processes do not need it

    try:
        with open(os.path.join(marks, f"start.{root}"), errors="surrogateescape") as stream:
            return Start(*ast.literal_eval(stream.read()))
    except (OSError, ValueError, SyntaxError, TypeError):
        return None


def _words() -> list[str]:
    words: list[str] = list(getattr(sys, "orig_argv", ()))
    if not words:  # Python 3.9
        with open("/proc/self/cmdline", "rb") as stream:
            words = [os.fsdecode(word) for word in stream.read().split(b"\0")[:-1]]
    return [sys.executable or words[0], *words[1:]]


def _environment(file: str) -> dict[str, str]:
    with open(file, "rb") as stream:
        pairs = (os.fsdecode(pair).partition("=") for pair in stream.read().split(b"\0"))
        return {name: value for name, sign, value in pairs if sign}


def _changed(before: dict[str, str], site: str) -> dict[str, str | None]:
    now = dict(os.environ)
    folders = now.get("PYTHONPATH", "").split(os.pathsep)
    if site in folders:
        folders.remove(site)
        now["PYTHONPATH"] = os.pathsep.join(folders)
    if not now.get("PYTHONPATH"):
        now.pop("PYTHONPATH", None)
    names = {*before, *now}
    return {
        name: now.get(name)
        for name in names
        if now.get(name) != before.get(name) and not name.startswith(OURS)
    }


def _stdin() -> str | None:
    try:
        state, link = os.fstat(0), os.readlink("/proc/self/fd/0")
    except OSError:
        return GIVEN  # closed
    if stat.S_ISREG(state.st_mode):
        same = os.path.exists(link) and os.path.samestat(state, os.stat(link))
        return link if same and not os.lseek(0, 0, os.SEEK_CUR) else None
    if not stat.S_ISFIFO(state.st_mode) and not stat.S_ISSOCK(state.st_mode):
        return GIVEN  # a terminal, or /dev/null
    return GIVEN if link == os.environ.get(STDIN) else None


def started_with(start: Start, environment: dict[str, str]) -> dict[str, str]:
    """Return the canary's environment with the changes that the process had."""
    found: dict[str, Any] = environment | start.changed
    return {name: value for name, value in found.items() if value is not None}
