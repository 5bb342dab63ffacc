"""Runs git, which nothing else in the package starts.

By default the repository may be a stranger's, and git runs no program that the repository's own
configuration names: hooks, pagers, credential helpers and the file system monitor are switched off
by name, and nothing is fetched, so no transport runs. A caller that knows whose repository it is
says otherwise.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from canary.config.secret_names import TOKENS
from canary.errors import UsageError

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


class GitMissing(UsageError):
    """Git is not installed."""

    def __init__(self, why: str = "install git 2.32 or newer") -> None:
        super().__init__("git is not installed", why)


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it wrote."""

    code: int | None
    """None where it was ended because it took too long."""
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
    timeout_s: float | None = PATIENCE_S,
    tokens: bool = False,
) -> Ended:
    """Runs one command in a folder. After `timeout_s` seconds it is ended, with all it started.

    `environ`: the surroundings, in place of those for a stranger's repository. `given`: standard
    input. `tokens`: leaves the variables that hold a job's token in the surroundings.

    Raises:
        GitMissing: git is not installed.
        OSError: git cannot be started.
    """
    safe = ("--no-pager", *(part for setting in OFF for part in ("-c", setting)))
    command = ["git", *(safe if environ is None else ()), *arguments]
    around = os.environ | SURROUNDINGS if environ is None else environ
    try:
        child = subprocess.Popen(
            command,
            cwd=folder,
            env={name: value for name, value in around.items() if tokens or name not in TOKENS},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for this process, which ends git in order.
        )
    except FileNotFoundError as error:
        raise GitMissing from error
    try:
        out, err = child.communicate(given, timeout_s)
    except subprocess.TimeoutExpired:
        _end(child)
        return Ended(None, b"", b"")
    except BaseException:
        _end(child)
        raise
    return Ended(child.returncode, out, err)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ends a command with the processes that talk to the server for it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.communicate()
