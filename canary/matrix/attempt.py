"""One try of a cell: its folder, and the shell lines that run it and leave how it ended.

It is `<matrix>/cells/<cell>/<number>`. The process that runs the try holds `lock` for as long as it
lives. `began` names it and its machine. `log.txt` has what the command printed. `ended` has its
exit code, and is written at once or not at all. `gave-up` says why a try is over without one.

These files alone say what was done, so a matrix that is killed goes on from them.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from canary.record import jsonio

LOCK, BEGAN, LOG, ENDED, GAVE_UP = "lock", "began", "log.txt", "ended", "gave-up"
STOP_GRACE_S = 20
SHELL = f"""
folder=$1 limit=$2
shift 2
echo "$$ $(uname -n)" >"$folder/{BEGAN}" || exit
DIES timeout -k {STOP_GRACE_S} "$limit" "$@" >"$folder/{LOG}" 2>&1 </dev/null CLOSED &
child=$!
trap 'kill "$child"' TERM INT HUP
wait "$child"
code=$?
while kill -0 "$child" 2>/dev/null; do wait "$child"; code=$?; done
echo "$code" >"$folder/{ENDED}.part" && mv "$folder/{ENDED}.part" "$folder/{ENDED}"
"""
"""Runs a command within a time limit. `timeout` ends with 124 if it is reached, and passes on the
signal that stops the try. CLOSED: the files of locks, which the command must not keep. DIES: what
stops the command if the shell itself is killed."""
DIES = ("setpriv", "--pdeathsig", "TERM")
"""Of util-linux."""
TIMED_OUT, KILLED = 124, 137


@functools.cache
def _has(program: str) -> bool:
    return shutil.which(program) is not None


@dataclass(frozen=True)
class Attempt:
    """A try of a cell."""

    cell: str
    number: int
    folder: Path
    command: tuple[str, ...]
    cwd: Path
    environment: Mapping[str, str]
    """Variables beside those of the launcher."""
    limit_s: float
    cores: int = 1
    gpus: int = 0

    def words(self, held: Sequence[int] = ()) -> list[str]:
        """Return the command that runs the try and leaves how it ended. `held`: files of locks,
        with one digit, that it inherits."""
        shell = SHELL.replace("CLOSED", " ".join(f"{number}>&-" for number in held))
        shell = shell.replace("DIES", " ".join(DIES) if _has(DIES[0]) else "")
        limit = f"{self.limit_s:.3f}"
        return ["/bin/sh", "-c", shell, "canary-cell", str(self.folder), limit, *self.command]

    def open_lock(self) -> int | None:
        """Take the lock of this try; return its file, or None if a process runs the try."""
        self.folder.mkdir(parents=True, exist_ok=True)
        number = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(number)
            return None
        return number

    def is_running(self) -> bool:
        """Whether a process runs it."""
        number = self.open_lock()
        if number is not None:
            os.close(number)
        return number is None

    def has_begun(self) -> bool:
        """Whether its command was started."""
        return (self.folder / BEGAN).exists()

    def ended(self) -> int | None:
        """Return the exit code; None if the try has not ended, or left none."""
        with contextlib.suppress(OSError, ValueError):
            return int(jsonio.content_of(self.folder / ENDED, 64))
        return None

    def gave_up(self) -> str | None:
        """Return why a launcher gave the try up; None if it did not."""
        with contextlib.suppress(OSError):
            return jsonio.content_of(self.folder / GAVE_UP, 4096).decode("utf-8", "replace")
        return None

    def give_up(self, reason: str) -> None:
        """Note why this try is over without an exit code."""
        self.folder.mkdir(parents=True, exist_ok=True)
        jsonio.replace_file(self.folder / GAVE_UP, reason)

    def cleared(self) -> None:
        """Remove what a try left that never ran."""
        shutil.rmtree(self.folder, ignore_errors=True)
