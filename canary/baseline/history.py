"""A history of baseline runs in a folder: one file a run, kept apart by canary and machine.

    <folder>/v1/<canary>/<machine key>/<start>_<run id>[+g<commit>][+red][+accepted].json
    <folder>/v1/<canary>/<machine key>/noise.json

A run that was accepted begins a new period: runs before it are kept and no longer compared with. A
red run (regression, changed and not accepted, error) is kept and never compared with. Names alone
tell the order, the periods and the commits, so that a long history costs no reading.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from canary.baseline.comparability import machine_key, slug, usable
from canary.baseline.entry import ENTRY_VERSION, Entry, entry_name
from canary.baseline.entry import Accepted as Accepted
from canary.baseline.entry import Context as Context
from canary.errors import InputError, MachineError
from canary.record import jsonio
from canary.record.types import RunRecord

if TYPE_CHECKING:
    from canary.baseline.ancestry import Ancestry

VERSION = "v1"
NOISE_FILE = "noise.json"
WINDOW = 20
"""Newest runs of a period that are compared with."""
ANCHORS = 3
"""First runs of a period, for the drift since then; from so many runs beyond them on."""


@dataclass(frozen=True)
class Selection:
    """What a run is compared with."""

    records: tuple[RunRecord, ...]
    anchor: tuple[RunRecord, ...]
    noise_file: Path | None
    stored: int
    """Runs in the current period."""
    elsewhere: int = 0
    """Stored runs left out because the commit does not descend from theirs."""


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


def comparable(found: Sequence[Entry]) -> list[Entry]:
    """Without the red ones."""
    return [entry for entry in found if not entry.red]


def current_period(found: Sequence[Entry]) -> list[Entry]:
    """From the newest accepted run on; where several runs of one commit were accepted, from the
    first of them."""
    newest = next((entry for entry in reversed(found) if entry.accepted), None)
    if newest is None:
        return list(found)
    begins = next(
        place
        for place, entry in enumerate(found)
        if entry == newest or (entry.accepted and newest.commit and entry.commit == newest.commit)
    )
    return list(found[begins:])


def periods(found: Sequence[Entry]) -> list[int]:
    """The period of each run, counted from 1."""
    made, number, last = [], 1, None
    for place, entry in enumerate(found):
        same = last is not None and entry.commit and entry.commit == last.commit
        if entry.accepted and place and not same:
            number += 1
        last = entry if entry.accepted else last
        made.append(number)
    return made


def descended(found: Sequence[Entry], ancestry: Ancestry) -> list[Entry]:
    """The runs of ancestors, the nearest last, runs of one commit by their start. Runs that name no
    commit count as ancestors, and as the oldest."""
    near = [
        (ancestry.distance(entry.commit) if entry.commit else len(ancestry), entry)
        for entry in found
    ]
    kept = [(distance, entry) for distance, entry in near if distance is not None]
    return [entry for _, entry in sorted(kept, key=lambda pair: (-pair[0], pair[1].path.name))]


def select(
    root: Path, record: RunRecord, window: int = WINDOW, ancestry: Ancestry | None = None
) -> Selection:
    """The newest runs of the record's canary and machine, without the record itself; with an
    ancestry, those of the nearest ancestors.

    Raises:
        RecordError: an entry that cannot be read.
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
    """Adds a run to a history and returns the entry's file.

    With a context, its commit stands for the record's own, and a run that is stored already is
    judged anew: its entry is replaced, but an acceptance is never taken back.

    Raises:
        InputError: not completed, too short, or stored already.
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
        raise InputError(f"run {record.run_id} is in {root} already")
    if any(entry.accepted for entry in before) and not accepted:
        return before[-1].path
    document = {
        "entry_version": ENTRY_VERSION,
        "accepted": accepted,
        "context": context.model_dump() if context else None,
        "record": record.model_dump(),
    }
    write(path, jsonio.dumps(document) + "\n")
    for entry in before:
        if entry.path != path:
            entry.path.unlink()
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
    of the current period stay: they are the anchor of the drift. Red runs are bounded alike, and go
    with the runs of their time."""
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


def rows(root: Path) -> Iterator[tuple[str, str, int, int, str, str]]:
    """Of each drawer: canary, machine, runs that count, those of them in the current period, oldest
    and newest start."""
    for folder in drawers(root):
        found = entries(folder)
        if found:
            good = comparable(found)
            period = len(current_period(good))
            yield (
                folder.parent.name,
                folder.name,
                len(good),
                period,
                found[0].start,
                found[-1].start,
            )
