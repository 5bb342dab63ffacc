"""Run git; no other module starts it.

By default a stranger may control the repository. Then git runs no program that the repository's
configuration names: hooks, pagers, credential helpers and the file system monitor are switched off.
Nothing is fetched, so no transport runs. A caller that trusts the repository passes `environ`.
Filters are programs too: the repository's are off before a command reads files; the user's stay.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from canary.config.setting_names import TOKENS
from canary.errors import UsageError

TIMEOUT_S = 20.0
SAFE_SETTINGS = (
    "core.fsmonitor=",
    f"core.hooksPath={os.devnull}",
    "core.pager=cat",
    "core.askPass=",
    "credential.helper=",
    "log.showSignature=false",
    "status.submoduleSummary=false",
)
SAFE_VARIABLES = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
"""Git before 2.44 ignores `GIT_NO_LAZY_FETCH`; there `GIT_ALLOW_PROTOCOL` prevents a fetch."""


class GitMissing(UsageError):
    """Git is not installed."""

    def __init__(self, why: str = "install git 2.32 or newer") -> None:
        super().__init__("git is not installed", why)


@dataclass(frozen=True)
class Ended:
    """Exit code and output of a command."""

    code: int | None
    """None after a timeout."""
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        """Standard output as text, without the last newline."""
        return self.out.decode("utf-8", errors="replace").strip()


def run_git(
    folder: Path,
    *arguments: str,
    environ: Mapping[str, str] | None = None,
    given: bytes = b"",
    timeout_s: float | None = TIMEOUT_S,
    tokens: bool = False,
) -> Ended:
    """Run one command in a folder. After `timeout_s` seconds it and its children are killed.

    `environ`: environment variables for a trusted repository. `given`: standard input. `tokens`:
    keep the variables that hold a job's token.

    Raises:
        GitMissing: git is not installed.
        OSError: git cannot be started.
    """
    safe = ("--no-pager", *(part for setting in SAFE_SETTINGS for part in ("-c", setting)))
    command = ["git", *(safe if environ is None else ()), *arguments]
    variables = os.environ | SAFE_VARIABLES if environ is None else environ
    try:
        child = subprocess.Popen(
            command,
            cwd=folder,
            env={name: text for name, text in variables.items() if tokens or name not in TOKENS},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C must reach only this process, which then ends git.
        )
    except FileNotFoundError as error:
        raise GitMissing from error
    try:
        out, err = child.communicate(given, timeout_s)
    except subprocess.TimeoutExpired:
        _end(child)
        return Ended(None, b"", b"")
    except BaseException:  # Ctrl-C must not leave it running.
        _end(child)
        raise
    return Ended(child.returncode, out, err)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill a command and the processes that talk to the server for it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.communicate()


FILTER_QUERY = (
    *("--includes", "--show-scope", "--null", "--name-only"),
    *("--get-regexp", r"^filter\."),
)


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
    # All scopes at once, as the command that follows reads them: a condition of an include in one
    # file can hold because of another file.
    done = _run(folder, timeout_s, "config", *FILTER_QUERY)
    if done.code not in (0, 1):  # 1: no filter is set.
        raise _failed(done)
    scopes, names = (os.fsdecode(done.out).split("\0")[start::2] for start in (0, 1))
    found = zip(scopes, names, strict=False)
    keys = sorted({key for scope, key in found if scope in ("local", "worktree")})
    if any("=" in key for key in keys):
        raise Unread("the repository's configuration has a filter with '=' in its name")
    return [f"{key}={'false' if key.endswith('.required') else ''}" for key in keys]
