"""The process and its terminal: signals, standard streams, progress."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import NoReturn, TextIO

from canary.errors import EXIT_ERROR, Stopped
from canary.report.escape import NOT_PRINTED, without_commands
from canary.report.lines import terminal_width, wrapped

_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def stoppable() -> None:
    """Make SIGTERM and a closed terminal end the verb with cleanup, as Ctrl-C does."""
    for ending in _ENDINGS:
        signal.signal(ending, _stop)


def open_closed_streams() -> None:
    """Open /dev/null for each closed standard stream (`>&-`), so that no later file gets its
    number. Child processes do not inherit it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        opened = os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
        setattr(sys, name, os.fdopen(opened, "w" if number else "r", encoding="utf-8"))


def _stop(number: int, frame: object) -> NoReturn:
    raise Stopped(number)


def sayer(quiet: bool) -> Callable[[str], None]:
    """Return a function that prints progress on standard error and ignores a closed pipe.

    Titles of commits and names of packages must not control the terminal.
    """

    def say(line: str) -> None:
        if not quiet:
            with contextlib.suppress(BrokenPipeError):
                harmless = NOT_PRINTED.sub(" ", line)
                print(wrapped(harmless, terminal_width(sys.stderr)), file=sys.stderr, flush=True)

    return say


class DisarmedLog(io.TextIOBase):
    """A job's log stream that disarms workflow commands. It writes only whole lines, because two
    harmless halves may make one command."""

    def __init__(self, to: TextIO) -> None:
        self.to = to
        """The real stream; the program writes its own commands there directly."""
        self._partial = ""

    def write(self, text: str) -> int:
        """Write every complete line."""
        *whole, self._partial = (self._partial + text).replace("\r", "\n").split("\n")
        for line in whole:
            self.to.write(f"{without_commands(line)}\n")
        return len(text)

    def flush(self) -> None:
        """Flush the real stream; an incomplete line waits."""
        self.to.flush()

    def end(self) -> None:
        """Write a last line that has no newline."""
        if self._partial:
            self.to.write(without_commands(self._partial))
            self._partial = ""
        self.to.flush()

    def fileno(self) -> int:
        return self.to.fileno()


@contextlib.contextmanager
def without_workflow_commands() -> Iterator[None]:
    """Disarm workflow commands in all that the block prints: errors, warnings, usage."""
    out, err = sys.stdout, sys.stderr
    disarmed = DisarmedLog(out), DisarmedLog(err)
    sys.stdout, sys.stderr = disarmed
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err
        for stream in disarmed:
            with contextlib.suppress(BrokenPipeError):
                stream.end()


def interrupted() -> NoReturn:
    """End the process; a further signal does not change its exit code."""
    for ending in _ENDINGS:
        signal.signal(ending, signal.SIG_IGN)
    print("canary: interrupted", file=sys.stderr)
    sys.exit(EXIT_ERROR)


def leave_quietly() -> None:
    """Drop output that a closed pipe did not take; otherwise Python would exit with 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (BrokenPipeError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
