"""MLflow's local stores: an `mlruns` folder, or an SQLite file.

Both are read as MLflow's documentation describes them. Its client needs a second to start, and
changes an SQLite file to its own version before it reads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from canary.errors import InputError
from canary.imports.entries import NON_FINITE, Entry, Telling, number_in, shortened
from canary.imports.files import LARGEST_TEXT, Found
from canary.imports.readers.jsonl import lines_of
from canary.imports.readers.runs import StoredRun, picked
from canary.imports.readers.sqlite_store import columns, is_store, opened
from canary.record.jsonio import open_regular

NEEDED = {"key", "value", "timestamp", "run_uuid", "step", "is_nan"}
LARGEST_FLOAT = 1.7976931348623157e308
"""MLflow stores an infinite value as this."""
FOLDER = "metrics"
STATUS = {1: "RUNNING", 2: "SCHEDULED", 3: "FINISHED", 4: "FAILED", 5: "KILLED"}
"""Numbers in `meta.yaml`; an SQLite store has the words."""
FINISHED = (3, "FINISHED")


def fits(file: Found) -> bool:
    """Whether a file is an SQLite store, or a metric's file in an `mlruns` folder."""
    if is_store(file):
        return columns(file, "metrics") >= NEEDED and bool(columns(file, "runs"))
    return _run_folder(file) is not None


def _run_folder(file: Found) -> str | None:
    """Return the folder of the run that a metric's file belongs to."""
    for parent in file.path.parents:
        if parent.name == FOLDER and (parent.parent / "meta.yaml").is_file():
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
    stores = [file for file in files if is_store(file)]
    if stores:
        yield from _of_store(stores[0], telling, run, since)
    else:
        yield from _of_folders(files, telling, run, since)


def _of_store(file: Found, telling: Telling, run: str | None, since: float) -> Iterator[Entry]:
    with opened(file) as store:
        known = store.execute("SELECT run_uuid, name, start_time, status FROM runs").fetchall()
        found = [
            StoredRun(str(key), str(name or key), (started or 0) / 1000)
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
            number = math.nan if is_nan else _widened(float(value))
            yield Entry(step, {str(key): number}, _seconds(written))


def _tell_status(status: object, telling: Telling, file: str) -> None:
    if status not in FINISHED:
        shown = STATUS.get(status, status) if isinstance(status, int) else status
        telling.tell(f"the run did not finish: its status is {shortened(shown)}", file)


def _widened(value: float) -> float:
    return math.copysign(math.inf, value) if abs(value) >= LARGEST_FLOAT else value


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
        runs.append(StoredRun(folder.rpartition("/")[2], folder, min(times, default=0.0)))
    chosen = picked(runs, run, since - 0.001, "the store", telling)
    _tell_status(_meta(chosen.name).get("status"), telling, shortened(chosen.id))
    for file in by_run[chosen.name]:
        yield from _of_metric(file, chosen.name, telling)


def _meta(folder: str) -> dict[str, Any]:
    """Return what MLflow notes of a run; empty if it cannot be read."""
    try:
        with open_regular(Path(folder) / "meta.yaml", 1 << 20) as stream:
            found = yaml.safe_load(stream.read(1 << 20))
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _of_metric(file: Found, folder: str, telling: Telling) -> Iterator[Entry]:
    """Yield the lines `<time in ms> <value> <step>` of a metric's file."""
    name = str(file.path.relative_to(f"{folder}/{FOLDER}"))
    for number, line, whole in lines_of(file, telling, LARGEST_TEXT):
        cells = line.decode("utf-8", "replace").split()
        value = step = written = None
        if len(cells) >= 2:
            written = number_in(cells[0])
            value = NON_FINITE.get(cells[1].lower(), number_in(cells[1]))
            step = number_in(cells[2]) if len(cells) > 2 else 0.0
        if value is None or step is None or written is None or not (whole or len(cells) > 2):
            what = "half written" if not whole else "no `time value step`"
            telling.tell(f"a line is {what} and was left out", file.name, number)
            continue
        yield Entry(step, {name: value}, _seconds(written))
