"""Runs the cells of a matrix: starts what fits, gathers what ended, and goes on after a kill.

What was done is read from the folders of the tries (`attempt.py`), so there is nothing to lose.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from canary.campaign.side import undisturbed
from canary.errors import CanaryError, MachineError, UsageError
from canary.matrix.attempt import Attempt
from canary.matrix.cells import Cell
from canary.matrix.local import LocalLauncher
from canary.matrix.outcomes import Outcome, Verdict
from canary.matrix.queue import QueueLauncher
from canary.record.runs import begin_campaign
from canary.record.strangers import link_in

CELLS, LOCK = "cells", "matrix.lock"
LOOK_S = 1.0
"""Longest pause between two polls."""
State = Literal["waits", "runs", "done"]


Launcher = LocalLauncher | QueueLauncher
"""Starts tries. All it knows of them is on disk or in the system that it asks, so that another
process can go on."""


@dataclass
class Entry:
    """A cell and how it goes."""

    cell: Cell
    state: State = "waits"
    outcome: Outcome | None = None


@dataclass
class Matrix:
    """The cells of one matrix in a folder."""

    folder: Path
    entries: list[Entry]
    launcher: Launcher
    planned: Callable[[Cell], Attempt]
    """Returns the try of a cell; an error says why there is no place for it."""
    judge: Callable[[Cell, Attempt], Outcome]
    told: Callable[[Matrix], None] = lambda matrix: None
    """Called at least once a second."""
    _attempts: dict[str, tuple[Entry, Attempt]] = field(default_factory=dict)

    def run(self) -> list[Entry]:
        """Run all cells that have not ended; return them all."""
        try:
            self._found_again()
            while any(entry.state != "done" for entry in self.entries):
                self._start()
                ended = self._gather()
                self.told(self)
                if not ended:
                    self.launcher.wait(LOOK_S)
        except BaseException:  # Ctrl-C must not leave a cell running: the next start runs it again.
            with undisturbed():
                self.launcher.cancel()
                for _, attempt in self._attempts.values():
                    if not attempt.is_running():
                        attempt.cleared()
            raise
        return self.entries

    def _found_again(self) -> None:
        """Take up the tries of earlier processes."""
        for entry in self.entries:
            try:
                attempt = self.planned(entry.cell)
                link = link_in(attempt.folder, self.folder)
                if link is not None:
                    hint = "start the matrix in another folder with -o"
                    raise MachineError(f"{link} is a link", hint)
                if not attempt.folder.exists():
                    continue
                if attempt.is_of_another():
                    words = "it ran in this folder with another config or command"
                    where = f"cells/{entry.cell.name}"
                    hint = f"choose another folder with -o, or remove {where} to run it again"
                    raise UsageError(words, hint)
            except (UsageError, MachineError) as error:
                self._refused(entry, error)
                continue
            over = attempt.ended() is not None or attempt.gave_up() is not None
            if not over and attempt.is_running():
                entry.state = "runs"
                self.told(self)  # Before the wait for it.
                entry.state = "waits"
            if not over and self.launcher.adopt(attempt):
                self._follow(entry, attempt)
            elif over or attempt.ended() is not None:
                self._ended(entry, attempt)
            elif not attempt.has_begun():
                attempt.cleared()
            else:
                attempt.give_up("its process is gone, and left no exit code")
                self._ended(entry, attempt)

    def _start(self) -> None:
        """Start cells until there is no place for one."""
        for entry in self.entries:
            if entry.state != "waits":
                continue
            try:
                attempt = self.planned(entry.cell)
                if not self.launcher.start(attempt):
                    break
            except (UsageError, MachineError) as error:
                self._refused(entry, error)
            else:
                self._follow(entry, attempt)

    @staticmethod
    def _refused(entry: Entry, error: CanaryError) -> None:
        verdict: Verdict = "invalid" if isinstance(error, UsageError) else "error"
        entry.outcome, entry.state = Outcome(verdict, str(error)), "done"

    def _follow(self, entry: Entry, attempt: Attempt) -> None:
        entry.state = "runs"
        self._attempts[entry.cell.name] = entry, attempt

    def _gather(self) -> int:
        """Judge the tries that ended."""
        count = 0
        for attempt, lost in self.launcher.poll():
            entry, _ = self._attempts.pop(attempt.cell)
            if lost and attempt.ended() is None:
                attempt.give_up(lost)
            self._ended(entry, attempt)
            count += 1
        return count

    def _ended(self, entry: Entry, attempt: Attempt) -> None:
        entry.outcome, entry.state = self.judge(entry.cell, attempt), "done"

    @property
    def running(self) -> list[Entry]:
        """Cells that were started and have not ended."""
        return [entry for entry in self.entries if entry.state == "runs"]


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Make the folder of a matrix, and let no other process run it within the block.

    Raises:
        UsageError: another process runs it.
        MachineError: it cannot be written.
    """
    try:
        begin_campaign(folder)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise MachineError(
            f"cannot write {folder}: {error.strerror or error}", "choose another folder with -o"
        ) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                f"another process runs the matrix in {folder}",
                "wait for it, or choose another folder with -o",
            ) from error
        yield
    finally:
        os.close(lock)
