"""The process of a user's command: who records in it, and how it ends (with the canary, after its
look, or by an alert)."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from canary.protocol.job import JOB, PARENT
from canary.training.anomaly.hooks import StopTraining

END_WAIT_S = 60.0
"""Seconds that a process whose look is over waits for its parent to end it."""
PARENT_EVERY_S = 1.0


def wait_for_the_end() -> NoReturn:
    """Wait until the parent ends this process: `--exact` runs nothing after the look."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if threading.current_thread() is threading.main_thread():
        # A DataLoader raises an error when the parent kills its workers.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    time.sleep(END_WAIT_S)
    os._exit(0)


def leave(why: str) -> NoReturn:
    """End this process with exit code 0: a training that is cut short is over."""
    say(why)
    if threading.current_thread() is threading.main_thread():
        raise SystemExit(0)
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()
    os._exit(0)


def follow_parent() -> None:
    """End this process if the canary is killed."""
    job_file = Path(os.environ.get(JOB, ""))
    threading.Thread(target=_end_with_parent, args=[job_file], daemon=True).start()


def _end_with_parent(job_file: Path) -> None:
    """End this process if the canary was killed (`kill -9`). A canary that ended by itself has
    removed the job file: then background processes of the command go on."""
    parent = int(os.environ.get(PARENT, "0"))
    while parent and Path(f"/proc/{parent}").exists():
        time.sleep(PARENT_EVERY_S)
    if parent and Path("/proc").exists() and job_file.is_file():
        os.kill(os.getpid(), signal.SIGTERM)


def print_without_traceback(stop: StopTraining) -> None:
    """Print `stop`, if nobody catches it, without its frames: they are the canary's code."""
    before: Callable[..., Any] = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, frames: Any) -> None:
        if error is stop:
            say(str(error))
        else:
            before(kind, error, frames)

    sys.excepthook = hook


def say(text: str) -> None:
    """Print a line of the canary's on standard error."""
    print(f"canary: {text}", file=sys.stderr, flush=True)


class Turn:
    """A Trainer or a Recorder takes the turn. From then on no plain loop is recorded."""

    def __init__(self) -> None:
        self.taken = False
        self.notes: list[str] = []
        """Sentences for the record of what took the turn."""
        self.give_way: Callable[[str], None] | None = None
        """Ends the recording of a plain loop; gets the name of what takes its place."""

    def take(self, by: str) -> None:
        """Take the turn for a Trainer or a Recorder."""
        if not self.taken and self.give_way is not None:
            self.give_way(by)
        self.taken = True


TURN = Turn()
"""The one of this process."""
