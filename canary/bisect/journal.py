"""The log of a bisect: what was asked for, and one line for each run, synced to disk.

A bisect that starts again in the same folder replays these runs and goes on. All that it decides
follows from its arguments and the records, so the log holds no decisions.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from canary.errors import MachineError, RecordError, UsageError
from canary.record import jsonio
from canary.record.runs import claim

LOG = "runs.jsonl"
VERSION: Literal[1] = 1
START_ANEW = "choose another folder with -o, or remove this one"
MOST_RUNS = 100_000

Stage = Literal["ends", "search", "last"]
"""Both ends, the search, the last step."""
Kind = Literal["look", "whole"]
"""The launches of a run."""


class Row(BaseModel):
    """One run, or one state that cannot run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    stage: Stage
    label: str
    """Name of the state: a commit, a set of packages."""
    state: str
    """The state in hexadecimal."""
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
    to_replay: deque[Row]
    """Runs of earlier processes that were not asked for again yet."""
    rows: list[Row] = field(default_factory=list)
    """All runs, replayed ones included."""
    _file: int = -1

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
            claim(folder)
            number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise MachineError(
                f"cannot write {path}: {error.strerror or error}", "choose another folder with -o"
            ) from error
        try:
            _lock(number, folder)
            rows = _read(path, asked, number)
        except BaseException:
            os.close(number)
            raise
        return cls(folder, deque(rows), _file=number)

    def close(self) -> None:
        """Close the file, which another process may use then."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def replayed(self, stage: Stage, state: int, kind: Kind) -> Row | None:
        """Return the logged run that is asked for now; None if all logged ones were.

        Raises:
            RecordError: the log goes on with another run.
        """
        if not self.to_replay:
            return None
        row = self.to_replay.popleft()
        if (row.stage, row.state, row.kind) != (stage, hex(state), kind):
            raise RecordError(
                f"the log {self.folder / LOG} does not fit: it has a {row.kind} run of "
                f"{row.label} where this version needs another run",
                START_ANEW,
            )
        self.rows.append(row)
        return row

    def add(self, row: Row) -> None:
        """Append a run and wait until the disk has it."""
        _append(self._file, row.model_dump(exclude_none=True), self.folder / LOG)
        self.rows.append(row)

    def forget(self) -> None:
        """Drop all runs, so that the next process begins anew with the same arguments."""
        with contextlib.suppress(OSError):
            head = jsonio.content_of(self.folder / LOG).index(b"\n") + 1
            os.ftruncate(self._file, head)
        self.rows.clear()
        self.to_replay.clear()

    @property
    def seconds(self) -> float:
        """Time of all runs so far."""
        return sum(row.seconds for row in self.rows)


def digest(value: Any) -> str:
    """Return a short hash of plain data."""
    return hashlib.sha256(jsonio.dumps(value).encode()).hexdigest()[:16]


def _lock(number: int, folder: Path) -> None:
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise UsageError(
            f"another process is bisecting in {folder}", "wait for it, or choose another -o"
        ) from error


def _read(path: Path, asked: Mapping[str, str], number: int) -> list[Row]:
    """Read the log of the same bisect, or write the first line of a new one."""
    text = jsonio.content_of(path)
    # A line that was cut off by a crash has no line break; the run behind it is repeated.
    whole = text[: text.rfind(b"\n") + 1]
    if len(whole) < len(text):
        os.ftruncate(number, len(whole))
    if not whole:
        _append(number, {"version": VERSION, "asked": dict(asked)}, path)
        return []
    try:
        first, *lines = [jsonio.loads(line) for line in whole.splitlines()[:MOST_RUNS]]
        head = _Head.model_validate(first)
        rows = [Row.model_validate(line) for line in lines]
    except (TypeError, ValueError, ValidationError) as error:
        raise RecordError(f"{path} is not the log of a bisect", START_ANEW) from error
    for name in sorted({*head.asked, *asked}):
        if head.asked.get(name) != asked.get(name):
            raise UsageError(f"{path.parent} holds a bisect with another {name}", START_ANEW)
    return rows


class _Head(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1]
    asked: dict[str, str]


def _append(number: int, document: Mapping[str, Any], path: Path) -> None:
    try:
        os.write(number, jsonio.dumps(document).encode() + b"\n")
        os.fsync(number)
    except OSError as error:
        raise MachineError(f"cannot write {path}: {error.strerror or error}") from error
