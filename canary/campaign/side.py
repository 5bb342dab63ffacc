"""One side of an A/B: where its code lies, which Python runs it, and one run of it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from canary.campaign.cleanup import undisturbed
from canary.errors import EXIT_USAGE, MachineError, UsageError
from canary.record.folder import load_record
from canary.record.types import RunRecord

STOP_GRACE_S = 20.0
"""Time for a run to close its record after it was told to stop."""


@dataclass(frozen=True)
class Side:
    """What runs on one side, in a process of its own."""

    role: str
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

    heard: Callable[[str], None] | None = None
    """Gets the lines in which a run tells how it goes, as they come; None: it says nothing."""

    def command(self, settings: Sequence[str]) -> list[str]:
        """The command of one run, with settings over the side's own."""
        words = [str(self.python), "-m", "canary.cli", "run", str(self.config)]
        words += [] if self.heard else ["--quiet"]
        words += ["--output-dir", str(self.output_dir)]
        for setting in (*self.settings, *settings):
            words += ["--set", setting]
        return words

    def run(self, *, probe: bool) -> RunRecord:
        """Runs one measured launch, with or without a probe; see `run_with`."""
        return self.run_with(["repeats=1"] if probe else ["repeats=1", "probe_steps=0"])

    def run_with(self, settings: Sequence[str]) -> RunRecord:
        """Runs the canary once and returns its record, however it ended.

        Raises:
            UsageError: config or input of this side cannot be used.
            MachineError: it ended without a record.
        """
        return self.finish(self.start(settings))

    def start(self, settings: Sequence[str]) -> subprocess.Popen[str]:
        """The process of one run, to be handed to `finish`.

        Raises:
            MachineError: it cannot be started.
        """
        return start_child(self.command(settings), self.folder, self.environment)

    def finish(self, child: subprocess.Popen[str]) -> RunRecord:
        """The record of a run that was started; raises as `run_with`."""
        code, out, err = finish_child(child, self.heard)
        lines = err.strip().splitlines()
        said = (lines[-1] if lines else f"exit code {code}").removeprefix("canary: ")
        if code == EXIT_USAGE:
            raise UsageError(f"{self.role} ({self.label}): {said}")
        printed = out.strip().splitlines()
        if not printed or not (Path(printed[-1]) / "metrics.json").exists():
            raise MachineError(f"{self.role} ({self.label}): no record was left: {said}")
        return load_record(Path(printed[-1]))


def run_child(
    command: list[str],
    folder: Path,
    environment: Mapping[str, str],
    heard: Callable[[str], None] | None = None,
) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of a command; stopped with this process.
    `heard` gets the lines of its standard error as they come.

    Raises:
        MachineError: it cannot be started.
    """
    return finish_child(start_child(command, folder, environment), heard)


def start_child(
    command: list[str], folder: Path, environment: Mapping[str, str]
) -> subprocess.Popen[str]:
    """As `run_child`, without waiting."""
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
        )
    except OSError as error:
        raise MachineError(f"cannot start {command[0]}: {error.strerror or error}") from error


def finish_child(
    child: subprocess.Popen[str], heard: Callable[[str], None] | None = None
) -> tuple[int, str, str]:
    """What `run_child` returns, of a command that was started."""
    try:
        out, err = child.communicate() if heard is None else _listened(child, heard)
    except BaseException:
        stop_child(child)
        raise
    return child.returncode, out, err


def _listened(child: subprocess.Popen[str], heard: Callable[[str], None]) -> tuple[str, str]:
    """What `communicate` returns, its second half heard line by line on the way."""
    assert child.stdout is not None
    assert child.stderr is not None
    lines: list[str] = []

    def listen(stream: IO[str]) -> None:
        for line in stream:
            lines.append(line)
            heard(line.rstrip("\n"))

    listener = threading.Thread(target=listen, args=(child.stderr,), daemon=True)
    listener.start()
    out = child.stdout.read()
    child.wait()
    listener.join()
    child.stdout.close()
    child.stderr.close()
    return out, "".join(lines)


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
