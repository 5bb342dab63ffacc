"""The runs of a bisect and their log: one line for each run, synced to disk before the next one.

A bisect that starts again in the same folder takes these runs from the log and goes on. All that it
decides follows from its arguments and the records, so the log holds no decisions.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from canary.bisect.candidates import Candidates
from canary.bisect.question import Kind
from canary.bisect.search import CannotRun, State
from canary.errors import MachineError, RecordError, UsageError, writing
from canary.record import jsonio
from canary.record.folder import load_record
from canary.record.runs import begin_campaign
from canary.record.types import RunRecord

LOG = "runs.jsonl"
ANEW = "choose another folder with -o, or remove this one"
SETTINGS: Mapping[Kind, tuple[str, ...]] = {
    "look": ("repeats=1", "exact=true"),
    "whole": ("repeats=1", "exact=false"),
}
LEAST_FREE = 64 << 20
"""Bytes; with fewer on the disk of the records, a failed run tells nothing."""

Part = Literal["ends", "search", "last"]
"""Of a bisect: both ends, the search, the last step."""


class Row(BaseModel):
    """One run, or one state that cannot run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    stage: Part
    label: str
    state: str
    """In hexadecimal."""
    kind: Kind
    run: str | None = None
    """Folder of the record, relative to that of the bisect."""
    why_not: str | None = None
    """Why the state cannot run."""
    seconds: float = Field(ge=0, allow_inf_nan=False)


@dataclass
class Journal:
    """The log in a folder, open for one process."""

    folder: Path
    file: int
    rows: list[Row] = field(default_factory=list)
    """The runs that were asked for, those of earlier processes included."""
    waiting: list[Row] = field(default_factory=list)
    """Logged runs that were not asked for again yet."""
    spent_s: float = 0.0
    """Time of the runs of this process."""

    @classmethod
    def open(cls, folder: Path, asked: Mapping[str, str]) -> Journal:
        """Open the log in a folder, or begin one. `asked`: what has to be equal to continue.

        Raises:
            UsageError: it is the log of another bisect, or another process uses it.
            RecordError: it cannot be read.
            MachineError: it cannot be written.
        """
        path = folder / LOG
        try:
            begin_campaign(folder)
            number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(f"another process is bisecting in {folder}", "wait for it") from error
        except OSError as error:
            raise MachineError(f"cannot write {path}: {error.strerror or error}", ANEW) from error
        journal = cls(folder, number)
        journal._read(path, asked)
        return journal

    def logged(self, stage: Part, state: State, kind: Kind) -> Row | None:
        """Take the next logged run of this kind; None if there is none."""
        wanted = stage, hex(state), kind
        for row in self.waiting:
            if (row.stage, row.state, row.kind) == wanted:
                self.waiting.remove(row)
                self.rows.append(row)
                return row
        return None

    def add(self, row: Row) -> None:
        """Append a run and wait until the disk has it."""
        self._append(row.model_dump(exclude_none=True))
        self.rows.append(row)
        self.spent_s += row.seconds

    def forget(self) -> None:
        """Drop all runs: the user may repair this machine and try again."""
        os.ftruncate(self.file, 0)

    def close(self) -> None:
        """Close the file, which another process may use then."""
        os.close(self.file)

    def _read(self, path: Path, asked: Mapping[str, str]) -> None:
        text = jsonio.content_of(path)
        # A line that was cut off by a crash has no line break; the run behind it is repeated.
        whole = text[: text.rfind(b"\n") + 1]
        os.ftruncate(self.file, len(whole))
        if not whole:
            self._append(dict(asked))
            return
        try:
            before, *lines = [jsonio.loads(line) for line in whole.splitlines()]
            self.waiting = [Row.model_validate(line) for line in lines]
            other = [name for name in {**before, **asked} if before.get(name) != asked.get(name)]
        except (AttributeError, TypeError, ValueError, ValidationError) as error:
            raise RecordError(f"{path} is not the log of a bisect", ANEW) from error
        if other:
            raise UsageError(f"{self.folder} holds a bisect with another {min(other)}", ANEW)

    def _append(self, document: Mapping[str, Any]) -> None:
        with writing(self.folder / LOG, ANEW):
            os.write(self.file, jsonio.dumps(document).encode() + b"\n")
            os.fsync(self.file)


@dataclass
class Runs:
    """Runs states, or takes their logged runs."""

    candidates: Candidates
    journal: Journal
    clock: Callable[[], float] = time.monotonic

    def run(self, stage: Part, state: State, kind: Kind) -> RunRecord:
        """Run a state once and return its record, even if the run failed.

        Raises:
            CannotRun: the state does not build, or its run leaves no record.
            RecordError: the record cannot be read.
        """
        row = self.journal.logged(stage, state, kind)
        if row is None:
            began, label = self.clock(), self.candidates.label(state)
            run, why = self._launch(state, kind, label)
            seconds = max(0.0, self.clock() - began)
            row = Row(
                stage=stage,
                label=label,
                state=hex(state),
                kind=kind,
                run=run,
                why_not=why,
                seconds=seconds,
            )
            self.journal.add(row)
        if row.run is None:
            raise CannotRun(row.why_not or "it cannot run")
        return load_record(self.journal.folder / row.run)

    def _launch(self, state: State, kind: Kind, label: str) -> tuple[str | None, str | None]:
        """Return the folder of a run, or why there is none."""
        failed, run, why = False, None, None
        try:
            side = self.candidates.side(state)
            record = side.run_with(SETTINGS[kind])
            failed = record.status != "completed"
            run = str((side.output_dir / record.run_id).relative_to(self.journal.folder))
        except CannotRun as error:
            why = str(error)
        except (UsageError, MachineError) as error:
            failed, why = True, re.sub(rf"^\w+ \({re.escape(label)}\): ", "", str(error))
        if failed and shutil.disk_usage(self.journal.folder).free < LEAST_FREE:
            raise MachineError("the disk is full", "free some space, and run the same command")
        return run, why
