"""The process on its terminal: signals that end it, progress, readers that have gone."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import NoReturn, TextIO

from canary.errors import EXIT_ERROR, Stopped
from canary.report.escape import without_commands
from canary.report.lines import terminal_width, wrapped


def stoppable() -> None:
    """SIGTERM and a closed terminal end a verb as Ctrl-C does: in order."""
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, _stop)


def open_closed_streams() -> None:
    """A standard stream that was closed (`>&-`) is /dev/null for this process, and no file that is
    opened later gets its number. What this process starts does not inherit it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        opened = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
        setattr(sys, name, os.fdopen(opened, "w" if number else "r", encoding="utf-8"))


def _stop(number: int, frame: object) -> NoReturn:
    raise Stopped(number)


def sayer(quiet: bool) -> Callable[[str], None]:
    """Prints progress on standard error until nobody reads it; its lines fit a terminal."""

    def say(line: str) -> None:
        if not quiet:
            with contextlib.suppress(BrokenPipeError):
                print(wrapped(line, terminal_width(sys.stderr)), file=sys.stderr, flush=True)

    return say


class Uncommanding(io.TextIOBase):
    """A stream of a job's log in which no line is a command, whoever writes it. Lines go on whole:
    two harmless halves may make one command."""

    def __init__(self, to: TextIO) -> None:
        self.to = to
        """Where it all goes, and where our own commands go past this."""
        self._begun = ""

    def write(self, text: str) -> int:
        """Passes on every line that is complete."""
        *whole, self._begun = (self._begun + text).replace("\r", "\n").split("\n")
        for line in whole:
            self.to.write(f"{without_commands(line)}\n")
        return len(text)

    def flush(self) -> None:
        """Passes on what was passed on."""
        self.to.flush()

    def end(self) -> None:
        """Passes on a last line without an end."""
        if self._begun:
            self.to.write(without_commands(self._begun))
            self._begun = ""
        self.to.flush()

    def fileno(self) -> int:
        """The stream's own."""
        return self.to.fileno()


@contextlib.contextmanager
def without_workflow_commands() -> Iterator[None]:
    """What the block prints commands no runner: errors, warnings of libraries, usage."""
    out, err = sys.stdout, sys.stderr
    guarded = Uncommanding(out), Uncommanding(err)
    sys.stdout, sys.stderr = guarded
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err
        for stream in guarded:
            with contextlib.suppress(BrokenPipeError):
                stream.end()


def interrupted() -> NoReturn:
    """Says so and ends the process."""
    print("canary: interrupted", file=sys.stderr)
    sys.exit(EXIT_ERROR)


def leave_quietly() -> None:
    """What a closed pipe did not take is dropped; Python's own exit would turn it into 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (BrokenPipeError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
