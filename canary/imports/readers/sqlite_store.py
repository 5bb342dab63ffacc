"""SQLite files of trackers, opened so that nothing in them runs or changes."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from urllib.parse import quote

from canary.errors import InputError
from canary.imports.entries import shortened
from canary.imports.files import LARGEST_BINARY, Found

SUFFIXES = (".db", ".sqlite", ".sqlite3")
MAGIC = b"SQLite format 3\0"
MOST_STEPS = 50_000_000_000
"""Instructions of SQLite's machine: a hostile view or index cannot hang the reader."""
EVERY = 1_000_000


def is_store(file: Found) -> bool:
    """Whether a file is SQLite's, by its ending and its first bytes."""
    return file.path.suffix in SUFFIXES and file.start().startswith(MAGIC)


def columns(file: Found, table: str) -> set[str]:
    """Return the columns of a real table; empty if there is none, or the file cannot be read."""
    try:
        with opened(file) as store:
            known = store.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)
            ).fetchone()
            if known is None:
                return set()
            return {str(row[1]) for row in store.execute(f"PRAGMA table_info({table})")}
    except InputError:
        return set()


@contextlib.contextmanager
def opened(file: Found) -> Iterator[sqlite3.Connection]:
    """Yield a connection that only reads.

    Raises:
        InputError: the file is no store, or damaged.
    """
    file.open(LARGEST_BINARY).close()
    wal = file.path.with_name(f"{file.base}-wal")
    # Only a reader without `immutable` sees what is still in the write-ahead log.
    fixed = "" if wal.exists() and wal.stat().st_size else "&immutable=1"
    spent = 0

    def tick() -> int:
        nonlocal spent
        spent += EVERY
        return int(spent > MOST_STEPS)

    try:
        store = sqlite3.connect(f"file:{quote(str(file.path))}?mode=ro{fixed}", uri=True)
        with contextlib.closing(store):
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
