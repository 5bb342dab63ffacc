"""MLflow's local stores."""

from __future__ import annotations

import contextlib
import math
import re
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from canary.errors import InputError
from canary.imports.entries import Entry, Telling, number_in, shortened
from canary.imports.files import LARGEST_BINARY, LONGEST_LINE, Found
from canary.imports.readers.json_files import lines_of
from canary.record.jsonio import open_regular

VERSIONS, WAL = slice(18, 20), b"\2\2"
"""The bytes of a store's header that say whether it is written through a log."""
LOCKED_S = 2.0
"""Seconds to wait for a program that writes."""
MOST_STEPS = 50_000_000_000
"""Instructions of SQLite's machine: a hostile view or index cannot hang the reader."""
LONGEST_READ_S = 300.0
LONGEST_PATTERN = 50
"""Characters of a pattern: a long one can need hours within one instruction."""
EVERY = 1_000_000


def columns(store: sqlite3.Connection, table: str) -> Set[str]:
    """Return the columns of a real table; empty if there is none.

    Columns that SQLite computes are left out: to read one runs what its file says."""
    known = store.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)
    ).fetchone()
    if known is None:
        return frozenset()
    return {str(row[1]) for row in store.execute(f"PRAGMA table_info({table})")}


def check(file: Found) -> None:
    """Raise InputError if a file is SQLite's but cannot be read."""
    if file.is_store:
        with opened(file) as store:
            store.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()


@contextlib.contextmanager
def _place(file: Found) -> Iterator[str]:
    """Yield the address of a store. One with a write-ahead log is copied, and one that may have one
    is opened as unchangeable: to look for the log, SQLite writes beside it."""
    log = file.path.with_name(f"{file.base}-wal")
    if file.start()[VERSIONS] != WAL:
        yield f"file:{quote(str(file.path))}?mode=ro"
        return
    if not log.is_file() or log.is_symlink() or not log.stat().st_size:
        yield f"file:{quote(str(file.path))}?mode=ro&immutable=1"
        return
    with tempfile.TemporaryDirectory(prefix="canary-import-") as scratch:
        copy = Path(scratch) / "store.db"
        for source, target in ((file.path, copy), (log, copy.with_name("store.db-wal"))):
            with open_regular(source, LARGEST_BINARY) as stream, target.open("wb") as out:
                shutil.copyfileobj(stream, out)
        yield f"file:{quote(str(copy))}?mode=rw"


@contextlib.contextmanager
def opened(file: Found) -> Iterator[sqlite3.Connection]:
    """Yield a connection that only reads.

    Raises:
        InputError: the file is no store, or damaged.
    """
    file.open(LARGEST_BINARY).close()
    spent = 0
    latest = time.monotonic() + LONGEST_READ_S

    def tick() -> int:
        nonlocal spent
        spent += EVERY
        return int(spent > MOST_STEPS or time.monotonic() > latest)

    try:
        with (
            _place(file) as place,
            contextlib.closing(sqlite3.connect(place, LOCKED_S, uri=True)) as store,
        ):
            store.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_LINE)
            store.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, LONGEST_PATTERN)
            store.execute("PRAGMA trusted_schema = OFF")
            store.execute("PRAGMA query_only = ON")
            store.text_factory = lambda raw: raw.decode("utf-8", "backslashreplace")
            store.set_progress_handler(tick, EVERY)
            yield store
    except sqlite3.Error as error:
        raise InputError(
            f"{file.name} cannot be read as an SQLite store: {shortened(error)}",
            "it may be half copied, or still open",
        ) from error


SHOWN = 5
CLOCKS_DIFFER_S = 60.0


@dataclass(frozen=True)
class StoredRun:
    """A run; `started` in seconds since the epoch."""

    id: str
    name: str
    started: float


def picked(
    runs: Sequence[StoredRun], asked: str | None, since: float, file: str, telling: Telling
) -> StoredRun:
    """Return the run that was asked for by name or id, else the newest. None counts that started
    before `since`, in seconds since the epoch.

    Raises:
        InputError: there is no such run, or several have the name.
    """
    if not runs:
        raise InputError(f"{file} holds no run", "name the store that the training wrote")
    # By hand all count. A run that begins after now was not started by a launch that ended.
    latest = time.time() + CLOCKS_DIFFER_S if since > 0 else math.inf
    fresh = [run for run in runs if since <= run.started <= latest]
    if not fresh:
        raise InputError(f"{file} holds no run that this launch started")
    if asked is not None:
        named = [run for run in fresh if asked in (run.id, run.name)]
        names = ", ".join(shortened(run.name) for run in runs[-SHOWN:])
        if not named:
            raise InputError(f"{file} holds no run {asked!r}", f"its newest are {names}")
        if len(named) > 1:
            ids = ", ".join(shortened(run.id) for run in named[:SHOWN])
            raise InputError(
                f"{file} holds {len(named)} runs named {asked!r}", f"name one by id: {ids}"
            )
        return named[0]
    newest = max(fresh, key=lambda run: (run.started, run.id))
    if len(runs) > 1:
        what = f"of {len(runs)} runs the newest was read: {shortened(newest.name)}; --run names one"
        telling.tell(what, file)
    return newest


NEEDED = {
    "metrics": {"key", "value", "timestamp", "run_uuid", "step", "is_nan"},
    "runs": {"run_uuid", "name", "start_time", "status"},
}
"""Tables of a store, and their columns."""
LARGEST_FLOAT = 1.7976931348623157e308
"""MLflow stores an infinite value as this."""
FOLDER = "metrics"
META = "meta.yaml"
LARGEST_META = 64 << 10
"""Bytes of a `meta.yaml`; MLflow writes less than one KiB."""
STATUS_LINE = re.compile(rb"^status: *['\"]?([A-Za-z0-9]{1,20})['\"]? *\r?$", re.MULTILINE)
STATUS = {"1": "RUNNING", "2": "SCHEDULED", "3": "FINISHED", "4": "FAILED", "5": "KILLED"}
"""Numbers in `meta.yaml`; an SQLite store has the words."""
FINISHED = "FINISHED"
FAILED = ("FAILED", "KILLED")


def fits(file: Found) -> bool:
    """Whether a file is an SQLite store, or a metric's file in an `mlruns` folder."""
    if not file.is_store:
        return _run_folder(file) is not None
    try:
        with opened(file) as store:
            return not _lacks(store)
    except InputError:
        return False


def _lacks(store: sqlite3.Connection) -> list[tuple[str, str]]:
    """Return the tables and columns of MLflow that a store lacks."""
    tables = ((table, wanted - columns(store, table)) for table, wanted in NEEDED.items())
    return [(table, column) for table, missing in tables for column in sorted(missing)]


def _run_folder(file: Found) -> str | None:
    """Return the folder of the run that a metric's file belongs to."""
    for parent in file.path.parents:
        if parent.name == FOLDER and (parent.parent / META).is_file():
            return str(parent.parent)
        if parent == parent.parent or parent.name == "artifacts":
            return None
    return None


def read(
    files: Sequence[Found], telling: Telling, run: str | None = None, since: float = 0.0
) -> Iterator[Entry]:
    """Yield the metrics of one run.

    Raises:
        InputError: the store is damaged, or has no such run.
    """
    stores = [file for file in files if file.is_store]
    if stores:
        yield from _of_store(stores[0], telling, run, since)
    else:
        yield from _of_folders(files, telling, run, since)


def _of_store(file: Found, telling: Telling, run: str | None, since: float) -> Iterator[Entry]:
    with opened(file) as store:
        for table, column in _lacks(store):
            raise InputError(
                f"{file.name} has no table `{table}` with the column `{column}`",
                "name the store that the training wrote",
            )
        known = store.execute("SELECT run_uuid, name, start_time, status FROM runs").fetchall()
        found = [
            StoredRun(str(key), str(name or key), _seconds(started) or 0.0)
            for key, name, started, _ in known
        ]
        # MLflow keeps milliseconds: a run that begins with the launch may seem a moment older.
        chosen = picked(found, run, since - 0.001, file.name, telling)
        _tell_status(next(row[3] for row in known if str(row[0]) == chosen.id), telling, file.name)
        rows = store.execute(
            "SELECT key, value, timestamp, step, is_nan FROM metrics WHERE run_uuid = ? "
            "ORDER BY rowid",
            (chosen.id,),
        )
        for key, value, written, step, is_nan in rows:
            if not isinstance(value, int | float) or not isinstance(step, int | float):
                telling.tell(f"`{shortened(key)}` has a value that is not a number", file.name)
                continue
            number = math.copysign(math.inf, value) if abs(value) >= LARGEST_FLOAT else float(value)
            yield Entry(step, {str(key): math.nan if is_nan else number}, _seconds(written))


def _tell_status(status: object, telling: Telling, file: str) -> None:
    word = STATUS.get(status, status) if isinstance(status, str) else "not known"
    if word in FAILED:
        telling.fail(f"MLflow has the status {word}")
    elif word != FINISHED:
        telling.tell(f"the run did not finish: its status is {shortened(word)}", file)


def _seconds(written: object) -> float | None:
    return written / 1000 if isinstance(written, int | float) and written > 0 else None


def _of_folders(
    files: Sequence[Found], telling: Telling, run: str | None, since: float
) -> Iterator[Entry]:
    by_run: dict[str, list[Found]] = {}
    for file in files:
        folder = _run_folder(file)
        if folder is not None:
            by_run.setdefault(folder, []).append(file)
    if not by_run:
        raise InputError("no run of MLflow in the source", "name an `mlruns` folder")
    runs = []
    for folder, mine in by_run.items():
        times = [
            entry.time or 0.0 for file in mine[:1] for entry in _of_metric(file, folder, telling)
        ]
        runs.append(StoredRun(Path(folder).name, Path(folder).name, min(times, default=0.0)))
    chosen = picked(runs, run, since - 0.001, "the store", telling)
    folder = next(one for one in by_run if Path(one).name == chosen.id)
    _tell_status(_status_in(Path(folder) / META), telling, shortened(chosen.id))
    for file in by_run[folder]:
        yield from _of_metric(file, folder, telling)


def _status_in(meta: Path) -> str | None:
    """Return the status in a run's `meta.yaml`, which is flat; None without one, or if the file is
    a link. No YAML is built: a stranger's could take all memory."""
    try:
        if meta.is_symlink():
            return None
        with open_regular(meta, LARGEST_META) as stream:
            found = STATUS_LINE.search(stream.read(LARGEST_META))
    except OSError:
        return None
    return found[1].decode() if found else None


def _of_metric(file: Found, folder: str, telling: Telling) -> Iterator[Entry]:
    """Yield the lines `<time in ms> <value> <step>` of a metric's file."""
    name = str(file.path.relative_to(f"{folder}/{FOLDER}"))
    for number, line, whole in lines_of(file):
        cells = line.decode("utf-8", "replace").split()
        value = step = written = None
        if len(cells) >= 2:
            written = number_in(cells[0])
            value = number_in(cells[1])
            step = number_in(cells[2]) if len(cells) > 2 else 0.0
        if value is None or step is None or written is None or not (whole or len(cells) > 2):
            what = "half written" if not whole else "no `time value step`"
            telling.tell(f"a line is {what} and was left out", file.name, number)
            continue
        yield Entry(step, {name: value}, _seconds(written))
