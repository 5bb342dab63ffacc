"""A history of baseline runs in a folder: one file a run, kept apart by canary and machine.

    <folder>/v1/<canary>/<machine key>/<start>_<run id>[+accepted].json
    <folder>/v1/<canary>/<machine key>/noise.json

A run that was accepted begins a new level: runs before it are kept and no longer compared with.
Names alone tell the order and the levels, so that a long history costs no reading.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from canary.baseline.comparability import machine_key, slug, usable
from canary.collect import jsonio
from canary.collect.folder import parse_record
from canary.collect.record import RunRecord
from canary.errors import InputError, MachineError, RecordError

VERSION = "v1"
ACCEPTED = "+accepted"
NOISE_FILE = "noise.json"
WINDOW = 20
"""Newest runs of a level that are compared with."""
ANCHORS = 3
"""First runs of a level, for the drift since then; from so many runs beyond them on."""
ENTRY_VERSION = 1


@dataclass(frozen=True)
class Entry:
    """One stored run, by its file's name."""

    path: Path

    @property
    def stem(self) -> str:
        """Start and run id."""
        return self.path.name.removesuffix(".json").removesuffix(ACCEPTED)

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.stem.partition("_")[2]

    @property
    def accepted(self) -> bool:
        """Whether a person accepted what changed with this run."""
        return self.path.name.endswith(f"{ACCEPTED}.json")

    def document(self) -> dict[str, Any]:
        """The stored entry.

        Raises:
            RecordError: not readable as one; never taken as an empty history.
        """
        try:
            document = jsonio.loads(self.path.read_bytes())
        except (OSError, ValueError) as error:
            raise RecordError(f"{self.path} cannot be read: {error}") from error
        if not isinstance(document, dict) or document.get("entry_version") != ENTRY_VERSION:
            raise RecordError(f"{self.path} is not an entry of a baseline history")
        return document

    def record(self) -> RunRecord:
        """The stored record."""
        return parse_record(self.document().get("record"), self.path)


@dataclass(frozen=True)
class Selection:
    """What a run is compared with."""

    records: tuple[RunRecord, ...]
    anchor: tuple[RunRecord, ...]
    noise_file: Path | None
    stored: int
    """Runs on the current level."""


def is_history(path: Path) -> bool:
    """Whether the folder holds a history."""
    return (path / VERSION).is_dir()


def drawer(root: Path, record: RunRecord) -> Path:
    """The folder of a record's canary and machine."""
    return root / VERSION / slug(record.name or "canary") / machine_key(record)


def drawers(root: Path) -> list[Path]:
    """Every canary and machine of a history, by name.

    Raises:
        InputError: the folder holds no history.
    """
    if not is_history(root):
        raise InputError(
            f"{root} holds no baseline history", "fill one with: canary save-baseline RUN FOLDER"
        )
    return sorted(path for path in (root / VERSION).glob("*/*") if path.is_dir())


def entries(folder: Path) -> list[Entry]:
    """The runs of one drawer, oldest first."""
    found = [path for path in folder.glob("*.json") if path.name != NOISE_FILE]
    return [Entry(path) for path in sorted(found, key=lambda path: path.name)]


def current_level(found: Sequence[Entry]) -> list[Entry]:
    """From the newest accepted run on."""
    for place in range(len(found) - 1, -1, -1):
        if found[place].accepted:
            return list(found[place:])
    return list(found)


def select(root: Path, record: RunRecord, window: int = WINDOW) -> Selection:
    """The newest runs of the record's canary and machine, without the record itself.

    Raises:
        RecordError: an entry that cannot be read.
    """
    folder = drawer(root, record)
    level = [entry for entry in current_level(entries(folder)) if entry.run_id != record.run_id]
    noise = folder / NOISE_FILE
    newest = [entry.record() for entry in level[-window:]]
    anchor: list[RunRecord] = []
    if len(level) >= 2 * ANCHORS:
        anchor = [entry.record() for entry in level[:ANCHORS]]
    return Selection(tuple(newest), tuple(anchor), noise if noise.exists() else None, len(level))


FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")


def _file_name(record: RunRecord, mark: str) -> str:
    """Start and run id.

    Raises:
        InputError: the record's own words for them cannot name a file.
    """
    if not FILE_NAME.fullmatch(record.run_id):
        raise InputError(
            f"run_id {record.run_id!r} cannot name a file", "letters, digits, '.', '_', '+', '-'"
        )
    try:
        start = datetime.fromisoformat(record.timestamp)
    except ValueError as error:
        raise InputError(
            f"timestamp {record.timestamp!r} of run {record.run_id} is no ISO 8601 time"
        ) from error
    return f"{start:%Y%m%dT%H%M%S}_{record.run_id}{mark}.json"


def save(root: Path, record: RunRecord, *, accepted: str | None = None) -> Path:
    """Adds a run to a history and returns the entry's file.

    Raises:
        InputError: not completed, too short, or stored already.
        MachineError: the folder cannot be written.
    """
    require_usable(record)
    folder = drawer(root, record)
    if any(entry.run_id == record.run_id for entry in entries(folder)):
        raise InputError(f"run {record.run_id} is in {root} already")
    mark = ACCEPTED if accepted else ""
    path = folder / _file_name(record, mark)
    document = {
        "entry_version": ENTRY_VERSION,
        "accepted": accepted,
        "record": record.model_dump(),
    }
    write(path, jsonio.dumps(document) + "\n")
    return path


def save_file(path: Path, record: RunRecord) -> None:
    """Writes a run as a baseline of one file.

    Raises:
        InputError: not completed, or too short.
        MachineError: it cannot be written.
    """
    require_usable(record)
    write(path, jsonio.dumps(record.model_dump(), indent=1) + "\n")


def require_usable(record: RunRecord) -> None:
    """InputError for a run that must not become a baseline."""
    problem = usable(record)
    if problem:
        raise InputError(f"{problem}; it cannot become a baseline")


def write(path: Path, text: str) -> None:
    """Replaces a file, its folder made where it is missing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        jsonio.replace_file(path, text)
    except OSError as error:
        raise MachineError(
            f"cannot write {path}: {error.strerror or error}", "choose another place"
        ) from error


def prune(root: Path, keep: int) -> list[Path]:
    """Removes all but the newest `keep` runs of each drawer, and returns what went. The first runs
    of the current level stay: they are the anchor of the drift."""
    removed = []
    for folder in drawers(root):
        found = entries(folder)
        anchors = current_level(found)[:ANCHORS]
        for entry in found[: max(0, len(found) - keep)]:
            if entry in anchors:
                continue
            entry.path.unlink()
            removed.append(entry.path)
    return removed


def rows(root: Path) -> Iterator[tuple[str, str, int, int, str, str]]:
    """Of each drawer: canary, machine, runs, runs on the current level, oldest, newest start."""
    for folder in drawers(root):
        found = entries(folder)
        if found:
            first, last = (entry.stem.partition("_")[0] for entry in (found[0], found[-1]))
            level = len(current_level(found))
            yield folder.parent.name, folder.name, len(found), level, first, last
