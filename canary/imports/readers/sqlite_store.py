"""SQLite files of trackers, opened so that nothing in them runs or changes."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Set
from pathlib import Path
from urllib.parse import quote

from canary.errors import InputError
from canary.imports.entries import shortened
from canary.imports.files import LARGEST_BINARY, LONGEST_LINE, Found
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
