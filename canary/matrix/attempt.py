"""One try of a cell: its folder, and the shell lines that run it and leave how it ended.

It is `<matrix>/cells/<cell>`. The process that runs the try holds `lock` for as long as it
lives. `began` names it, its machine and the time, with a line for each time that a queue started
it. `log.txt` has what the command printed. `ended` has its exit code and the time, and is written
at once or not at all. `gave-up` says why a try is over without one. `run.sh` runs the try, where it
lies in a queue. `asked` has a hash of what the cell was: a folder answers only for the cell that
ran in it.

These files alone say what was done, so a matrix that is killed goes on from them.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from canary.record import jsonio

LOCK, BEGAN, LOG, ENDED, GAVE_UP = "lock", "began", "log.txt", "ended", "gave-up"
SCRIPT, ASKED = "run.sh", "asked"
STOP_GRACE_S, LATE_LOCK_S, SIGNAL_S = 20, 60, 1
TIMED_OUT, KILLED, STOPPED = 124, 137, 143
SHELL = f"""
folder=$1 limit=$2 stopped=
shift 2
echo "$$ $(uname -n) $(date +%s.%N)" >>"$folder/{BEGAN}" || exit
dies=$(command -v setpriv) && dies="$dies --pdeathsig TERM"
$dies timeout -k {STOP_GRACE_S} "$limit" $dies "$@" >"$folder/{LOG}" 2>&1 </dev/null &
child=$!
trap 'stopped=1; kill "$child"' TERM INT HUP
wait "$child"
code=$?
while kill -0 "$child" 2>/dev/null; do wait "$child"; code=$?; done
[ "$code" -lt 128 ] || sleep {SIGNAL_S}
[ -z "$stopped" ] || exit {STOPPED}
echo "$code $(date +%s.%N)" >"$folder/{ENDED}.part" && mv "$folder/{ENDED}.part" "$folder/{ENDED}"
"""
"""Runs a command within a time limit. `timeout` ends with 124 if it is reached, and passes on the
signal that stops the try; a stopped try has not ended, a queue may start it again. The shell holds
locks as its input and output, which the command does not get. `setpriv` (util-linux) stops the
command if the shell or `timeout` is gone, which for a moment does not know its child. Slurm signals
all processes one by one: the command may end by a signal shortly before this shell gets it."""
TEMPLATE = f"""#!/bin/sh
# Runs a cell to its end once, however often it is started.
folder=FOLDER
exec >>"$folder/{LOCK}" || exit
flock -w {LATE_LOCK_S} 1 || exit 0
if [ -e "$folder/{ENDED}" ] || [ -e "$folder/{GAVE_UP}" ]; then exit 0; fi
# What a start before this one left.
(cd "$folder" && rm -rf LEFT) || exit
cd CWD || exit
EXPORTS
exec WORDS
"""
RUNS, CHECK = LEFT = ("runs", "check")
"""What verbs leave in the folder of a try."""
CPU, CLUSTER = "cpu", "cluster"
"""Values of `device`: no GPU; all of a Ray cluster, which the cell divides by itself."""


@dataclass(frozen=True)
class Attempt:
    """A try of a cell."""

    cell: str
    folder: Path
    command: tuple[str, ...]
    cwd: Path
    environment: Mapping[str, str]
    """Variables beside those of the launcher."""
    limit_s: float
    cores: int = 1
    gpus: int = 0
    device: str | None = None
    """Type of its GPUs, as the queue names it; None: any."""
    asked: str = ""
    """Hash of the cell and its config."""

    @property
    def words(self) -> list[str]:
        """The command that runs the try and leaves how it ended."""
        limit = f"{self.limit_s:.3f}"
        return ["/bin/sh", "-c", SHELL, "canary-cell", str(self.folder), limit, *self.command]

    def write_script(self) -> Path:
        """Write the script that runs the try wherever a queue starts it; return its path."""
        values = {
            "FOLDER": shlex.quote(str(self.folder)),
            "LEFT": " ".join(LEFT),
            "CWD": shlex.quote(str(self.cwd)),
            "EXPORTS": "\n".join(
                f"export {name}={shlex.quote(value)}"
                for name, value in self.environment.items()
                if os.environ.get(name) != value  # The queue passes the others on, unwritten.
            ),
            "WORDS": shlex.join(self.words),
        }
        named = re.compile(r"\b(" + "|".join(values) + r")\b")
        text = named.sub(lambda match: values[match[1]], TEMPLATE)
        self.begin()
        jsonio.replace_file(self.folder / SCRIPT, text)
        return self.folder / SCRIPT

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

    def begin(self) -> None:
        """Make the folder of a try that was never started, with nothing in it but what it is."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.cleared()
        if self.asked:
            jsonio.replace_file(self.folder / ASKED, self.asked)

    def is_running(self) -> bool:
        """Whether a process runs it."""
        number = self.open_lock()
        if number is not None:
            os.close(number)
        return number is None

    def said(self, name: str, most: int = 4096) -> str | None:
        """Return the text of a file; None if there is none, or it is a link or large."""
        with contextlib.suppress(OSError):
            content = jsonio.content_of(self.folder / name, most, follow=False)
            return content.decode("utf-8", "replace")
        return None

    def is_of_another(self) -> bool:
        """Whether another cell, or another config of it, ran in this folder."""
        return self.said(ASKED) not in (None, self.asked)

    def has_begun(self) -> bool:
        """Whether its command was started."""
        return (self.folder / BEGAN).exists()

    def starts(self) -> int:
        """Return how often it was started: more than once, if a queue took its place away."""
        return len((self.said(BEGAN) or "").splitlines())

    def took(self) -> float:
        """Return the seconds from its last start to its end, by the clock of its machine; 0 if it
        is not known. A stranger may have written them: never more than it may take."""
        with contextlib.suppress(ValueError, IndexError):
            began, ended = (float(self._words(name)[-1]) for name in (BEGAN, ENDED))
            took = ended - began
            if math.isfinite(took):
                return min(max(0.0, took), self.limit_s + STOP_GRACE_S)
        return 0.0

    def _words(self, name: str) -> list[str]:
        """Return the words of the last line of a file; raise IndexError if it has none."""
        return (self.said(name) or "").strip().splitlines()[-1].split()

    def ended(self) -> int | None:
        """Return the exit code; None if the try has not ended, or left none."""
        with contextlib.suppress(ValueError, IndexError):
            return int((self.said(ENDED, 64) or "").split()[0])
        return None

    def gave_up(self) -> str | None:
        """Return why a launcher gave the try up; None if it did not."""
        return self.said(GAVE_UP)

    def give_up(self, reason: str) -> None:
        """Note why this try is over, unless it left an exit code after all."""
        if self.ended() is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            jsonio.replace_file(self.folder / GAVE_UP, reason)

    def cleared(self) -> None:
        """Remove what a try left that does not count. Its lock stays: a job of it may come late,
        and must meet the next one there."""
        with contextlib.suppress(OSError):
            for one in [] if self.folder.is_symlink() else [*self.folder.iterdir()]:
                if one.is_dir() and not one.is_symlink():
                    shutil.rmtree(one, ignore_errors=True)
                elif one.name != LOCK:
                    one.unlink(missing_ok=True)
