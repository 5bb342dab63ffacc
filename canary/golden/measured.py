"""The values of a run that golden files hold: every metric over the steps of each launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from canary.errors import InputError, RecordError, nearest
from canary.golden.model import Series
from canary.record.curves import ROW_METRICS, curve_of
from canary.record.folder import RunFolder, load_record, measured_rows
from canary.record.step_row import Row
from canary.record.types import RunRecord

MOST_NAMED = 12


@dataclass(frozen=True)
class MeasuredRun:
    """A completed run with the rows of its measured launches."""

    record: RunRecord
    folder: Path
    launches: tuple[tuple[Row, ...], ...]
    """Rows by launch; empty if only the record is at hand."""

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.record.run_id

    def metrics(self) -> list[str]:
        """Return the names of all metrics that have a value."""
        names = dict.fromkeys(name for row in self._first() for name in row.get("rl") or {})
        known = [*ROW_METRICS, *names] if self.launches else list(self.record.curves)
        return [name for name in known if self.series(name).steps]

    def series(self, name: str) -> Series:
        """Return the metric over the first measured launch; empty without values."""
        if self.launches:
            return _series(self.launches[0], name)
        curve = self.record.curves.get(name)
        return Series() if curve is None else Series(tuple(curve.steps), tuple(curve.values))

    def repeats(self, name: str) -> list[Series]:
        """Return the metric over each measured launch."""
        return [_series(rows, name) for rows in self.launches] or [self.series(name)]

    def _first(self) -> Sequence[Row]:
        return self.launches[0] if self.launches else ()


def _series(rows: Sequence[Row], name: str) -> Series:
    curve = curve_of(rows, name)
    return Series(tuple(curve.steps), tuple(curve.values))


def measured_run(path: Path) -> MeasuredRun:
    """Load a run that can be compared with a golden file, or become one.

    Raises:
        InputError: it is missing, did not complete, or holds no steps.
        RecordError: record or rows cannot be read.
    """
    record = load_record(path, write_back=False)
    if record.status != "completed":
        why = f": {record.reason}" if record.reason else ""
        raise InputError(
            f"run {record.run_id} is {record.status}{why}", "only a completed run can be golden"
        )
    folder = path if path.is_dir() else path.parent
    launches = _launches(folder) if (folder / "steps.jsonl").exists() else ()
    if not launches and not record.curves:
        raise InputError(
            f"run {record.run_id} has no steps in {folder}",
            "name the run's folder: a golden file needs its steps.jsonl",
        )
    return MeasuredRun(record, folder, launches)


def _launches(folder: Path) -> tuple[tuple[Row, ...], ...]:
    """Return the rows of each measured launch.

    Raises:
        RecordError: they cannot be read.
    """
    by_launch: dict[int, list[Row]] = {}
    try:
        for row in measured_rows(RunFolder(folder)):
            by_launch.setdefault(row["launch"], []).append(row)
        launches = tuple(tuple(rows) for _, rows in sorted(by_launch.items()))
        for rows in launches:
            for name in (*ROW_METRICS, *{name for row in rows for name in row.get("rl") or {}}):
                curve_of(rows, name)
    except OSError as error:
        raise RecordError(f"cannot read the steps in {folder}: {error.strerror}") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        said = str(error).splitlines()
        why = said[-1] if said else type(error).__name__
        raise RecordError(f"the steps in {folder} cannot be read: {why}", "train again") from error
    return launches


def require_metric(run: MeasuredRun, name: str) -> Series:
    """Return a metric's series.

    Raises:
        InputError: the run has no such metric.
    """
    found = run.series(name)
    if found.steps:
        return found
    known = run.metrics()
    near = nearest(name, known)
    shown = ", ".join(known[:MOST_NAMED])
    raise InputError(
        f"run {run.run_id} has no metric {name!r}",
        f"did you mean {near!r}?" if near else f"it has {shown}",
    )
