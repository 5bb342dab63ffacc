"""trackio's local store: one SQLite file per project, with a JSON object per row.

The tables are those of trackio 0.43. Its own functions read only its own folder, and change a store
when they open it. So the table is read directly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from canary.imports.entries import Entry, Telling
from canary.imports.files import Found
from canary.imports.readers.jsonl import Document
from canary.imports.readers.rows import entry_of, unix_time
from canary.imports.readers.runs import StoredRun, picked
from canary.imports.readers.sqlite_store import check_table, columns, is_store, opened

NEEDED = {"run_name", "timestamp", "step", "metrics"}


def fits(file: Found) -> bool:
    """Whether a file is such a store."""
    return is_store(file) and columns(file, "metrics") >= NEEDED


def runs(file: Found) -> list[StoredRun]:
    """Return the runs of a store, with the time of their first row."""
    check_table(file, "metrics", NEEDED)
    key = "run_id" if "run_id" in columns(file, "metrics") else "run_name"
    with opened(file) as store:
        rows = store.execute(
            f"SELECT {key}, MIN(run_name), MIN(timestamp) FROM metrics GROUP BY {key}"
        ).fetchall()
    return [
        StoredRun(str(run), str(name), unix_time(str(started)) or 0.0)
        for run, name, started in rows
    ]


def read(
    files: Sequence[Found], telling: Telling, run: str | None = None, since: float = 0.0
) -> Iterator[Entry]:
    """Yield the rows of one run, in the order in which they were written.

    Raises:
        InputError: the store is damaged, or has no such run.
    """
    file = files[0]
    chosen = picked(runs(file), run, since, file.name, telling)
    key = "run_id" if "run_id" in columns(file, "metrics") else "run_name"
    parser = Document()
    with opened(file) as store:
        rows = store.execute(
            f"SELECT timestamp, step, metrics FROM metrics WHERE {key} = ? ORDER BY id",
            (chosen.id,),
        )
        for written, step, metrics in rows:
            try:
                row = parser.parse(metrics)
            except (TypeError, ValueError):
                telling.tell("a row is not JSON and was left out", file.name)
                continue
            if not isinstance(row, dict):
                telling.tell("a row is not an object and was left out", file.name)
                continue
            entry = entry_of(row, telling, file.name)
            values = {**entry.values}
            if isinstance(step, int | float):
                values["_step"] = float(step)
            yield entry._replace(values=values, time=unix_time(str(written)))
