"""The runs of a folder, and what the list says about each. Nothing is written."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from canary.errors import InputError, RecordError
from canary.record.folder import is_alive
from canary.record.runs import METRICS, StoredRun
from canary.record.strangers import Stamp, goes_on, stamp, stored_record
from canary.record.types import Owner, RunRecord
from canary.report.runs_table import cells

DEEPEST = 4
"""Levels below the listed folder at which runs are found: `ab` in `canary_output` has its own, and
one per side."""
MOST_RUNS = 2000
"""Runs in the list, the newest ones."""
HEADINGS = ("canary", "trainer", "steps", "step time", "final loss", "alerts")
MARKS = {
    "running": "▶",
    "completed": "✓",
    "failed": "✗",
    "timeout": "✗",
    "oom": "✗",
    "interrupted": "■",
    "unreadable": "?",
}


@dataclass(frozen=True)
class Place:
    """A run's folder, and the name by which addresses know it."""

    name: str
    """Its path in the listed folder."""
    path: Path

    @property
    def campaign(self) -> str:
        """The folder of its campaign; empty if it has none."""
        first, _, rest = self.name.partition("/")
        return first if rest else ""

    @property
    def title(self) -> str:
        """Its name in its campaign."""
        return self.name.removeprefix(f"{self.campaign}/")

    @property
    def address(self) -> str:
        """The address of its page."""
        return f"/run/{quote(self.name)}"


@dataclass(frozen=True)
class RunLine:
    """What the list says about one run."""

    place: Place
    status: str
    cells: tuple[str, ...] = ("",) * len(HEADINGS)
    """Below HEADINGS."""
    started: float = 0.0
    """Seconds since the epoch."""

    @property
    def mark(self) -> str:
        """A sign for the status."""
        return MARKS[self.status]

    @property
    def age(self) -> str:
        """How long ago it started; empty if that is not known."""
        if not self.started:
            return ""
        seconds = max(0.0, time.time() - self.started)
        for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
            if seconds >= size:
                return f"{seconds // size:.0f} {unit} ago"
        return "just now"


def above(line: RunLine) -> Sequence[PurePosixPath]:
    """Return the folders of a run's folder, from its own up to the listed one, `.`."""
    return PurePosixPath(line.place.name).parents


class Listing:
    """The runs of a folder. Records that did not change are not read again."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock = threading.Lock()
        self._lines: dict[str, tuple[Stamp | None, RunLine, Owner | None]] = {}
        """Each run's stamp and line, and its owner while it goes on: that process may die."""

    def places(self) -> dict[str, Place]:
        """Return the runs that are there now, by name."""
        found = sorted(_found(self.root, ""), key=lambda place: place.path.name)
        return {place.name: place for place in found[-MOST_RUNS:]}

    def lines(self) -> list[RunLine]:
        """Return all runs: those that go on first, then the newest first."""
        places = self.places()
        with self._lock:
            for name in self._lines.keys() - places.keys():
                del self._lines[name]
            lines = list(map(self._line, places.values()))
        return sorted(lines, key=lambda line: (line.status != "running", -line.started))

    def _line(self, place: Place) -> RunLine:
        now = stamp(place.path / METRICS)
        known = self._lines.get(place.name)
        if known is None or known[0] != now:
            known = (now, *_read(place))
            self._lines[place.name] = known
        _, line, owner = known
        gone = owner is not None and not is_alive(owner)
        return replace(line, status="interrupted") if gone else line


def _found(folder: Path, above: str) -> Iterator[Place]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        hidden = entry.name.startswith(".") or not entry.name.isprintable()
        if hidden or not entry.is_dir(follow_symlinks=False):
            continue
        place = Place(f"{above}{entry.name}", folder / entry.name)
        if stamp(place.path / METRICS) is not None:
            yield place
        elif place.name.count("/") < DEEPEST - 1:
            yield from _found(place.path, f"{place.name}/")


def _read(place: Place) -> tuple[RunLine, Owner | None]:
    """Return a run's line, and its owner if the run goes on."""
    try:
        record = stored_record(place.path)
        going = goes_on(record)
        status = "interrupted" if record.status == "running" and not going else record.status
        return _told(place, record, status), record.owner if going else None
    except (InputError, RecordError, ArithmeticError, LookupError, TypeError, ValueError):
        return RunLine(place, "unreadable"), None


def _told(place: Place, record: RunRecord, status: str) -> RunLine:
    _, _, steps, step_time, _, loss = cells(StoredRun(place.path, record))
    of = record.config.get("max_steps")
    alerts = record.alert_summary.total if record.alert_summary else 0
    return RunLine(
        place,
        status,
        (
            record.name,
            str(record.config.get("training_type") or ""),
            f"{steps} of {of}" if isinstance(of, int) else steps,
            step_time,
            loss,
            str(alerts or ""),
        ),
        datetime.fromisoformat(record.timestamp).timestamp(),
    )
