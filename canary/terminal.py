"""The process on its terminal: signals that end it, progress, readers that have gone."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from canary.errors import EXIT_ERROR, Stopped


def stoppable() -> None:
    """SIGTERM and a closed terminal end a verb as Ctrl-C does: in order."""
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, _stop)


def _stop(number: int, frame: object) -> NoReturn:
    raise Stopped(number)


def sayer(quiet: bool) -> Callable[[str], None]:
    """Prints progress on standard error until nobody reads it."""

    def say(line: str) -> None:
        if not quiet:
            with contextlib.suppress(BrokenPipeError):
                print(line, file=sys.stderr, flush=True)

    return say


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
