"""A history of baseline runs in a folder: one file per run, one folder per canary and machine.

    <folder>/v2/<canary>/<machine key>/<start>_<run id>[+g<commit>][+red][+accepted].json
    <folder>/v2/<canary>/<machine key>/noise.json

An accepted run begins a new period: earlier runs are kept, but no longer compared with. A red run
(regression, changed and not accepted, error) is kept, but never compared with. The names give the
order, the periods and the commits, so that a long history needs no reading.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from canary.baseline.comparability import machine_key, slug, why_unusable
from canary.baseline.entry import Accepted as Accepted
from canary.baseline.entry import Context as Context
from canary.baseline.entry import Entry, Stored, entry_name
from canary.errors import InputError, writing
from canary.record import jsonio
from canary.record.types import RunRecord

if TYPE_CHECKING:
    from canary.baseline.ancestry import Ancestry

VERSION = "v2"
NOISE_FILE = "noise.json"
WINDOW = 20
"""Newest runs of a period that a run is compared with."""
ANCHORS = 3
"""First runs of a period, which show drift once the period has as many runs again."""


@dataclass(frozen=True)
class Selection:
    """The stored runs that a run is compared with."""

    records: tuple[RunRecord, ...]
    anchor: tuple[RunRecord, ...]
    noise_file: Path | None
    stored: int
    """Runs in the current period."""
    elsewhere: int = 0
    """Stored runs left out because the commit does not descend from their commits."""


def is_history(path: Path) -> bool:
    """Return whether the folder holds a history."""
    return (path / VERSION).is_dir()


def drawer(root: Path, record: RunRecord) -> Path:
    """Return the drawer of a record: the folder of its canary and machine."""
    return root / VERSION / slug(record.name or "canary") / machine_key(record)


def drawers(root: Path) -> list[Path]:
    """Return all drawers of a history, by name.

    Raises:
        InputError: the folder holds no history.
    """
    if not is_history(root):
        raise InputError(
            f"{root} holds no baseline history", "write one with: canary save-baseline RUN FOLDER"
        )
    return sorted(path for path in (root / VERSION).glob("*/*") if path.is_dir())


def entries(folder: Path) -> list[Entry]:
    """Return the runs of one drawer, oldest first."""
    paths = [path for path in folder.glob("*.json") if path.name != NOISE_FILE]
    return [Entry(path) for path in sorted(paths, key=lambda path: path.name)]


def comparable(found: Sequence[Entry]) -> list[Entry]:
    """Return the runs that are not red."""
    return [entry for entry in found if not entry.red]


def current_period(found: Sequence[Entry]) -> list[Entry]:
    """Return the runs from the newest accepted one on, or from the first accepted one of its
    commit."""
    newest = next((entry for entry in reversed(found) if entry.accepted), None)
    if newest is None:
        return list(found)
    first = next(
        place
        for place, entry in enumerate(found)
        if entry == newest or (entry.accepted and newest.commit and entry.commit == newest.commit)
    )
    return list(found[first:])


def periods(found: Sequence[Entry]) -> list[int]:
    """Return the period of each run, counted from 1."""
    made, number, last = [], 1, None
    for place, entry in enumerate(found):
        same = last is not None and entry.commit and entry.commit == last.commit
        if entry.accepted and place and not same:
            number += 1
        last = entry if entry.accepted else last
        made.append(number)
    return made


def descended(found: Sequence[Entry], ancestry: Ancestry) -> list[Entry]:
    """Return the runs of ancestors, the nearest last, and runs of one commit by their start. Runs
    without a commit count as the oldest ancestors."""
    near = [
        (ancestry.distance(entry.commit) if entry.commit else len(ancestry), entry)
        for entry in found
    ]
    kept = [(distance, entry) for distance, entry in near if distance is not None]
    return [entry for _, entry in sorted(kept, key=lambda pair: (-pair[0], pair[1].path.name))]


def select(
    root: Path, record: RunRecord, window: int = WINDOW, ancestry: Ancestry | None = None
) -> Selection:
    """Select the newest runs of the record's canary and machine, without the record itself; with
    an ancestry, those of the nearest ancestors.

    Raises:
        RecordError: an entry cannot be read.
    """
    folder = drawer(root, record)
    others = [e for e in comparable(entries(folder)) if e.run_id != record.run_id]
    found = others if ancestry is None else descended(others, ancestry)
    period = current_period(found)
    noise = folder / NOISE_FILE
    newest = [entry.record() for entry in period[-window:]]
    anchor: list[RunRecord] = []
    if len(period) >= 2 * ANCHORS:
        anchor = [entry.record() for entry in period[:ANCHORS]]
    return Selection(
        tuple(newest),
        tuple(anchor),
        noise if noise.exists() else None,
        len(period),
        len(others) - len(found),
    )


def save(
    root: Path, record: RunRecord, *, accepted: str | None = None, context: Context | None = None
) -> Path:
    """Add a run to a history, and return the entry's file.

    A context's commit replaces the record's. With a context, a run that is already stored is
    replaced, but an acceptance is never removed.

    Raises:
        InputError: the run did not complete, is too short, or is already stored.
        MachineError: the folder cannot be written.
    """
    require_usable(record)
    if context is not None and context.accepted is not None:
        accepted = accepted or context.accepted.reason or f"accepted by {context.accepted.by}"
    if context is not None and context.commit:
        record = record.model_copy(update={"git": {**record.git, "sha": context.commit}})
    folder = drawer(root, record)
    path = folder / entry_name(record, context, accepted=bool(accepted))
    before = [entry for entry in entries(folder) if entry.run_id == record.run_id]
    if before and context is None:
        raise InputError(f"run {record.run_id} is already in {root}")
    if any(entry.accepted for entry in before) and not accepted:
        return before[-1].path
    stored = Stored(entry_version=1, accepted=accepted, context=context, record=record.model_dump())
    write(path, jsonio.dumps(stored.model_dump()) + "\n")
    for entry in before:
        if entry.path != path:
            entry.path.unlink()
    return path


def save_file(path: Path, record: RunRecord) -> None:
    """Write a run as a baseline of one file.

    Raises:
        InputError: the run did not complete, or is too short.
        MachineError: the file cannot be written.
    """
    require_usable(record)
    write(path, jsonio.dumps(record.model_dump(), indent=1) + "\n")


def require_usable(record: RunRecord) -> None:
    """Raise InputError for a run that must not become a baseline."""
    problem = why_unusable(record)
    if problem:
        raise InputError(f"{problem}; it cannot become a baseline")


def write(path: Path, text: str) -> None:
    """Replace a file; make its folder if that is missing."""
    with writing(path, "choose another place"):
        path.parent.mkdir(parents=True, exist_ok=True)
        jsonio.replace_file(path, text)


def prune(root: Path, keep: int) -> list[Path]:
    """Remove all but the newest `keep` runs of each drawer, and return the removed files. The first
    runs of the current period stay, to measure drift. Of the red runs the newest `keep` stay, if
    they are not older than the kept runs."""
    removed = []
    for folder in drawers(root):
        found = entries(folder)
        good = comparable(found)
        newest = good[-keep:]
        red = [e for e in found if e.red and (not newest or e.start >= newest[0].start)]
        kept = {*newest, *current_period(good)[:ANCHORS], *red[-keep:]}
        for entry in found:
            if entry not in kept:
                entry.path.unlink()
                removed.append(entry.path)
    return removed
