"""A history for the cells of a matrix."""

from __future__ import annotations

from pathlib import Path

from canary.baseline.history import save
from canary.record.types import RunRecord
from tests.unit.comparing import history


def of_cell(name: str, record: RunRecord) -> RunRecord:
    """The record as if a cell had made it."""
    return record.model_copy(update={"name": name})


def stored(root: Path, name: str, count: int = 5) -> None:
    """Fill the drawer of a cell with runs of 0.1 s per step."""
    for one in history(count=count):
        save(root, of_cell(name, one))
