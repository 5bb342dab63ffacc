"""Both sides of a page: their records, and the steps of those whose folder is at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from canary.compare.paths import Compared
from canary.compare.report import Comparison
from canary.record.folder import RunFolder, rows_of_run
from canary.record.jsonio import number
from canary.record.metric_names import QUANTITIES, Quantity
from canary.record.ranks import rank_files
from canary.record.step_row import Row
from canary.record.strangers import can_read
from canary.record.types import RunRecord

Series = Mapping[int, float]
"""Values by step."""

_ROWS: TypeAdapter[list[Row]] = TypeAdapter(list[Row])


@dataclass(frozen=True)
class ShownRun:
    """A run, with its launches' steps if they could be read."""

    record: RunRecord
    rows: tuple[Row, ...] = ()

    def first_rows(self) -> list[Row]:
        """Return the rows of the first launch, from which the record's series come."""
        first = min((row.get("launch", 0) for row in self.rows), default=0)
        return [row for row in self.rows if row.get("launch", 0) == first]


@dataclass(frozen=True)
class ShownSides:
    """The runs of both sides, oldest first; the baseline may be empty."""

    current: tuple[ShownRun, ...]
    baseline: tuple[ShownRun, ...] = ()
    found: Comparison | None = None
    """Their comparison, whose figures the charts repeat."""

    @property
    def newest(self) -> ShownRun:
        """The run that is shown step by step."""
        return self.current[-1]


def shown_run(record: RunRecord, folder: Path | None) -> ShownRun:
    """Return a run with its steps, if its folder holds readable ones."""
    if folder is None:
        return ShownRun(record)
    try:
        if not can_read(rank_files(folder / "steps.jsonl").values()):
            return ShownRun(record)
        rows = rows_of_run(RunFolder(folder))
        return ShownRun(record, tuple(checked_rows(rows)))
    except (OSError, ValidationError, AttributeError, KeyError, TypeError, ValueError):
        return ShownRun(record)


def sides_of(compared: Compared) -> ShownSides:
    """Return both sides of a comparison, with the steps of the runs whose folder is at hand."""
    current, baseline = (
        tuple(shown_run(record, compared.folders.get(record.run_id)) for record in side)
        for side in (compared.current, compared.baseline)
    )
    return ShownSides(current, baseline, compared.found)


def checked_rows(rows: Sequence[Row]) -> list[Row]:
    """Return a stranger's rows.

    Raises:
        ValidationError: a row is wrong.
    """
    return _ROWS.validate_python(rows)


def losses(run: ShownRun) -> Series:
    """Return the loss of each step of the first launch."""
    return _counted(run.record, run.record.stability.loss_values)


def gradient_norms(run: ShownRun) -> Series:
    """Return the gradient norm of each step of the first launch."""
    return _counted(run.record, run.record.stability.grad_norm_values)


def _counted(record: RunRecord, values: Iterable[float | None]) -> Series:
    steps = enumerate(values, start=record.first_step)
    return {step: value for step, value in steps if value is not None}


def metric(run: ShownRun, quantity: Quantity) -> Series:
    """Return a trainer's metric by step; empty without the run's steps."""
    return _of_rows(run.first_rows(), lambda row: quantity.value_in(row.get("rl") or {}))


def charted_metrics(run: ShownRun) -> list[Quantity]:
    """Return the metrics of learning that the run's steps have, in the table's order."""
    return [each for each in QUANTITIES.values() if each.label and metric(run, each)]


def of_steps(rows: Sequence[Row], name: str) -> Series:
    """Return one number of each row, such as `wall_s`."""
    return _of_rows(rows, lambda row: row.get(name))


def _of_rows(rows: Iterable[Row], read: Callable[[Row], object]) -> Series:
    found: dict[int, float] = {}
    for row in rows:
        value = number(read(row))
        if isinstance(value, int | float) and "step" in row:
            found[int(row["step"])] = float(value)
    return found
