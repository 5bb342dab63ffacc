"""Runs a program of a check, with its output in a log."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.release_candidate.outcomes import CheckFailed

LINES_SHOWN = 3
LONGEST_S = 3600.0
OURS = ("CANARY_", "PYTHON", "VIRTUAL_ENV", "GIT_")
"""A stranger has no variables that begin so."""


def stranger() -> dict[str, str]:
    """Return the environment variables without those of this project and of this Python."""
    return {name: value for name, value in os.environ.items() if not name.startswith(OURS)}


def run(
    command: Sequence[object],
    log: Path,
    cwd: Path | None = None,
    code: int = 0,
    environ: Mapping[str, str] | None = None,
) -> str:
    """Return what the command prints; its output is also appended to the log.

    Raises:
        CheckFailed: it ended with another exit code, or took longer than an hour.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env={**stranger(), **(environ or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=LONGEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise CheckFailed(f"{_short(words)} took longer than {LONGEST_S:.0f} s") from error
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as stream:
        stream.write(f"$ {' '.join(words)}\n{done.stdout}[exit code {done.returncode}]\n\n")
    if done.returncode != code:
        end = " / ".join(done.stdout.strip().splitlines()[-LINES_SHOWN:])
        raise CheckFailed(
            f"{_short(words)} ended with exit code {done.returncode}: {end} (see {log.name})"
        )
    return done.stdout


def _short(words: Sequence[str]) -> str:
    shown = ["PROGRAM" if "\n" in word else word for word in words[1:4]]
    return " ".join([Path(words[0]).name, *shown])
