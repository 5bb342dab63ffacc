"""Run git; no other module starts it.

By default a stranger may control the repository. Then git runs no program that the repository's
configuration names: hooks, pagers, credential helpers and the file system monitor are switched off.
Nothing is fetched, so no transport runs. A caller that trusts the repository passes `environ`.
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
    except BaseException:
        _end(child)
        raise
    return Ended(child.returncode, out, err)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill a command and the processes that talk to the server for it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.communicate()
