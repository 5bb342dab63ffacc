"""One side of an A/B: where its code lies, which Python runs it, and one run of it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from canary.campaign.cleanup import undisturbed
from canary.errors import EXIT_USAGE, MachineError, UsageError
from canary.protocol.job import EVENTS
from canary.record import jsonio
from canary.record.folder import load_record
from canary.record.types import RunRecord
from canary.runner.display.progress import Event

STOP_GRACE_S = 20.0
"""Time for a run to close its record after it was told to stop."""
LAST_EVENTS_S = 5.0
"""Time for the last events of a run that has ended to be heard."""


@dataclass(frozen=True)
class Side:
    """What runs on one side, in a process of its own."""

    role: str
    """Before what went wrong, with the label; empty: nothing is."""
    label: str
    """Commit or config, as shown."""
    config: Path
    folder: Path
    """Working directory: the worktree, or the user's own."""
    python: Path
    environment: Mapping[str, str]
    output_dir: Path
    settings: tuple[str, ...] = ()
    """`--set` values, of both sides alike."""

    def command(self, settings: Sequence[str]) -> list[str]:
        """The command of one run, with settings over the side's own."""
        words = [str(self.python), "-m", "canary.cli", "run", str(self.config)]
        words += ["--quiet", "--output-dir", str(self.output_dir)]
        for setting in (*self.settings, *settings):
            words += ["--set", setting]
        return words

    def run(self, *, probe: bool) -> RunRecord:
        """Runs one measured launch, with or without a probe; see `run_with`."""
        return self.run_with(["repeats=1"] if probe else ["repeats=1", "probe_steps=0"])

    def run_with(
        self, settings: Sequence[str], heard: Callable[[Event], None] | None = None
    ) -> RunRecord:
        """Runs the canary once and returns its record, however it ended. `heard` gets its events as
        they come.

        Raises:
            UsageError: config or input of this side cannot be used.
            MachineError: it ended without a record.
        """
        if heard is None:
            return self.finish(self.start(settings))
        with events_to(heard) as file:
            environment = {**self.environment, EVENTS: str(file)}
            return self.finish(start_child(self.command(settings), self.folder, environment, file))

    def start(self, settings: Sequence[str]) -> subprocess.Popen[str]:
        """The process of one run, to be handed to `finish`.

        Raises:
            MachineError: it cannot be started.
        """
        return start_child(self.command(settings), self.folder, self.environment)

    def finish(self, child: subprocess.Popen[str]) -> RunRecord:
        """The record of a run that was started; raises as `run_with`."""
        whose = f"{self.role} ({self.label}): " if self.role else ""
        return load_record(folder_left(*finish_child(child), whose))


def folder_left(code: int, out: str, err: str, whose: str = "") -> Path:
    """The folder of a `canary run` that has ended: its standard output is that path alone.

    Raises:
        UsageError: config or input cannot be used; `whose`, and what the run said of it.
        MachineError: it left no record.
    """
    lines = err.strip().splitlines()
    said = (lines[-1] if lines else f"exit code {code}").removeprefix("canary: ")
    if code == EXIT_USAGE:
        raise UsageError(f"{whose}{said}")
    printed = out.strip().splitlines()
    if not printed or not (Path(printed[-1]) / "metrics.json").exists():
        raise MachineError(f"{whose}no record was left: {said}")
    return Path(printed[-1])


@contextlib.contextmanager
def events_to(heard: Callable[[Event], None]) -> Iterator[int]:
    """An open file for a child (see `EVENTS`), by its number; `heard` gets what is written there
    line by line, in a thread of its own."""
    reading, writing = os.pipe()

    def listen() -> None:
        with os.fdopen(reading, encoding="utf-8") as stream:
            for line in stream:
                if line.endswith("\n"):  # A child that is killed leaves half a line.
                    heard(Event(**jsonio.loads(line)))

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        yield writing
    finally:
        os.close(writing)
        listener.join(LAST_EVENTS_S)


def run_child(
    command: list[str], folder: Path, environment: Mapping[str, str]
) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of a command; stopped with this process.

    Raises:
        MachineError: it cannot be started.
    """
    return finish_child(start_child(command, folder, environment))


def start_child(
    command: list[str], folder: Path, environment: Mapping[str, str], *files: int
) -> subprocess.Popen[str]:
    """As `run_child`, without waiting; the child keeps the open files of these numbers."""
    try:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            pass_fds=files,
        )
    except OSError as error:
        raise MachineError(f"cannot start {command[0]}: {error.strerror or error}") from error


def finish_child(child: subprocess.Popen[str]) -> tuple[int, str, str]:
    """What `run_child` returns, of a command that was started."""
    try:
        out, err = child.communicate()
    except BaseException:
        stop_child(child)
        raise
    return child.returncode, out, err


def stop_child(child: subprocess.Popen[str]) -> None:
    """Asks it to end, and ends it where it does not."""
    if child.poll() is None:
        with undisturbed():
            _stop(child)


def _stop(child: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.send_signal(signal.SIGTERM)
    try:
        child.wait(STOP_GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
