"""Pairs that truncation left without a completion, which ORPO and CPO would keep."""

from __future__ import annotations

from typing import Any

from canary.workload.data import require_enough
from canary.workload.spec import WorkloadSpec


def require_completions(spec: WorkloadSpec, trainer: Any) -> None:
    """Takes out the pairs that truncation left without a completion: their loss is not a number.

    Raises InputError where too few rows are left.
    """
    rows = trainer.train_dataset
    names = ("chosen_labels", "rejected_labels")
    usable = [
        number
        for number, row in enumerate(rows)
        if all(any(label >= 0 for label in row[name]) for name in names)
    ]
    require_enough(spec, len(usable))
    if len(usable) < len(rows):
        trainer.train_dataset = rows.select(usable)
