"""One side of an A/B: its code, its Python, its runs, and the looks of both sides at once.

A second Ctrl-C does not interrupt the cleanup.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from canary.baseline.comparability import why_unusable
from canary.campaign.pairs import Role, RunSide
from canary.config.load import LoadedConfig, load_config
from canary.errors import EXIT_USAGE, InputError, MachineError, RunFailed, UsageError
from canary.machine.program import program
from canary.protocol.job import STARTER, Listener
from canary.record.folder import load_record
from canary.record.runs import begin_campaign
from canary.record.types import RunRecord
from canary.runner.display.progress import steps_shown_on
from canary.runner.run import run_canary

STOP_GRACE_S = 20.0
"""Time for a run to write its record after it gets SIGTERM."""


@dataclass(frozen=True)
class Side:
    """The canary of one side. Each run is a separate process."""

    role: str
    """Put before error messages, with the label; empty: no prefix."""
    label: str
    """Commit or config, for people."""
    config: Path
    folder: Path
    """Working directory: the worktree, or the user's working directory."""
    python: Path
    environment: Mapping[str, str]
    output_dir: Path
    settings: tuple[str, ...] = ()
    """`--set` values, the same on both sides."""
    shows: bool = False
    """Whether the steps of a run are shown while it goes on."""

    def command(self, settings: Sequence[str]) -> list[str]:
        """Return the command of one run; `settings` override the side's settings."""
        words = [*program(self.python), "run", str(self.config)]
        words += [*([] if self.shows else ["--quiet"]), "--output-dir", str(self.output_dir)]
        for setting in (*self.settings, *settings):
            words += ["--set", setting]
        return words

    def run_with(self, settings: Sequence[str] = ("repeats=1",)) -> RunRecord:
        """Run the canary once and return its record, even if the run failed.

        Raises:
            UsageError: config or input of this side cannot be used.
            MachineError: the run left no record.
        """
        return self.finish(self.start(settings))

    def start(self, settings: Sequence[str]) -> subprocess.Popen[str]:
        """Start one run; pass its process to `finish`. It ends if this process is killed.

        Raises:
            MachineError: the process cannot be started.
        """
        environment = {**self.environment, STARTER: str(os.getpid())}
        return start_child(self.command(settings), self.folder, environment)

    def finish(self, child: subprocess.Popen[str]) -> RunRecord:
        """Wait for a run and return its record; raises like `run_with`."""
        prefix = f"{self.role} ({self.label}): " if self.role else ""
        ended = finish_child(child, steps_shown_on(sys.stderr))
        return load_record(folder_left(*ended, prefix))


def folder_left(code: int, out: str, err: str, prefix: str = "") -> Path:
    """Return the folder of an ended `canary run`: its standard output is only that path.

    Raises:
        UsageError: config or input cannot be used; the message begins with `prefix`.
        MachineError: the run left no record.
    """
    lines = err.strip().splitlines()
    last_line = (lines[-1] if lines else f"exit code {code}").removeprefix("canary: ")
    if code == EXIT_USAGE:
        raise UsageError(f"{prefix}{last_line}")
    printed = out.strip().splitlines()
    if not printed or not (Path(printed[-1]) / "metrics.json").exists():
        raise MachineError(f"{prefix}the run left no record: {last_line}")
    return Path(printed[-1])


def run_child(
    command: list[str], folder: Path, environment: Mapping[str, str]
) -> tuple[int, str, str]:
    """Run a command; return (exit code, standard output, standard error). Ctrl-C stops it.

    Raises:
        MachineError: the command cannot be started.
    """
    return finish_child(start_child(command, folder, environment))


def start_child(
    command: list[str], folder: Path, environment: Mapping[str, str], *files: int
) -> subprocess.Popen[str]:
    """Like `run_child`, without waiting. The child inherits the open files `files`."""
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


def finish_child(
    child: subprocess.Popen[str], saw: Callable[[str], None] = lambda _: None
) -> tuple[int, str, str]:
    """Wait for a started command; returns like `run_child`. `saw` gets each line of its standard
    error when it comes."""
    lines: list[str] = []

    def read() -> None:
        for line in child.stderr or ():
            lines.append(line)
            saw(line)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        out = child.stdout.read() if child.stdout else ""
        child.wait()
    except BaseException:  # Ctrl-C must not leave it running.
        stop_child(child)
        raise
    reader.join()
    return child.returncode, out, "".join(lines)


def stop_child(child: subprocess.Popen[str]) -> None:
    """Stop a child with SIGTERM, and with SIGKILL if it does not end."""
    if child.poll() is not None:
        return
    with undisturbed():
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(signal.SIGTERM)
        try:
            child.wait(STOP_GRACE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


@contextlib.contextmanager
def at_once(sides: Mapping[str, Side], settings: Sequence[str]) -> Iterator[RunSide]:
    """Start a run of each side; yield a function that waits for a run and returns its record.

    Each further call for a side starts a new run. Runs that are still active at the end are
    stopped. Commands that share a folder take turns, because they would write into each other's
    files. Canaries that share a GPU take turns too, by its lock. Threads of torch that wait sleep,
    or both runs would spin on each other's cores: looks took 5 times as long.
    """
    running: dict[str, subprocess.Popen[str]] = {}
    sides = {
        role: replace(side, environment={"OMP_WAIT_POLICY": "PASSIVE", **side.environment})
        for role, side in sides.items()
    }

    def launch(role: Role) -> RunRecord:
        child = running.pop(role, None)
        child = sides[role].start(settings) if child is None else child
        return sides[role].finish(child)

    try:
        if not _shares_files(sides):
            for role, side in sides.items():
                running[role] = side.start(settings)
        yield launch
    finally:
        for child in running.values():
            stop_child(child)


def _shares_files(sides: Mapping[str, Side]) -> bool:
    """Whether a user's command runs in a folder that both sides share."""
    if len({side.folder for side in sides.values()}) == len(sides):
        return False
    loaded = [load_config(side.config, side.settings) for side in sides.values()]
    return any(one.config.training_type == "exec" for one in loaded)


ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore Ctrl-C, SIGTERM and SIGHUP inside; does nothing outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = {number: signal.signal(number, signal.SIG_IGN) for number in ENDINGS}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def claimed(folder: Path) -> None:
    """Make a campaign's folder.

    Raises:
        MachineError: it cannot be made.
    """
    try:
        begin_campaign(folder)
    except OSError as error:
        raise MachineError(
            f"cannot make {folder}: {error.strerror or error}", "choose another folder with -o"
        ) from error


def completed_run(loaded: LoadedConfig, output_dir: Path | None) -> tuple[RunRecord, Path]:
    """Run a canary once; return its record, which can be judged, and its folder.

    Raises:
        InputError: config, model or data cannot be used.
        RunFailed: the run did not complete, or is too short.
        KeyboardInterrupt: the run was interrupted.
    """
    record, folder, result = run_canary(loaded, Listener(), output_dir)
    if result.status == "interrupted":
        raise KeyboardInterrupt
    if result.usage_error:
        raise InputError(str(result.reason), result.hint)
    problem = why_unusable(record)
    if problem:
        raise RunFailed(problem, record.status, result.hint or f"record: {folder}")
    return record, folder
