"""CSV files that pages of W&B and TensorBoard export: which column is which run's metric."""

from __future__ import annotations

import re
from collections.abc import Sequence

from canary.errors import InputError
from canary.imports.axis import STEP_NAMES
from canary.imports.entries import plain, shortened
from canary.imports.files import Found

Column = tuple[str, str]
"""Run and metric. Columns of no run belong to all."""
OF_A_TAG = ["wall_time", "step", "value"]
"""The header of TensorBoard's "download CSV"."""
TAG = re.compile(r"^run[-_].*[-_]tag[-_](?P<tag>.+?)(?: ?\(\d+\))?\.csv$", re.IGNORECASE)
BETWEEN = " - "
BOUNDS = ("__MIN", "__MAX")
"""Endings of the columns that W&B adds to a metric: the range of the steps that it averaged."""


def columns_of(names: Sequence[str], file: Found) -> list[Column]:
    """Return run and metric of each column; an empty metric is not read.

    Raises:
        InputError: nothing says which metric it is, or what counts the steps.
    """
    if [plain(name) for name in names] == OF_A_TAG:
        found = TAG.match(file.base)
        if found is None:
            raise InputError(
                f"{file.name} has values, but its name does not say of which metric",
                "name it as TensorBoard does, such as run-mine_tag-train_loss.csv",
            )
        return [("", name) for name in names[:2]] + [("", found["tag"])]
    shared = names[0] if names else ""
    others = [name for name in names if name not in ("", shared)]
    if not others or BETWEEN in shared or any(BETWEEN not in name for name in others):
        return [("", name) for name in names]
    twice = next((name for name in others if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f"{file.name} has two runs of one name: the column `{shortened(twice)}` stands twice",
            "give the runs different names in W&B, or export one of them",
        )
    found_columns = [_of_panel(name, names) if name != shared else ("", name) for name in names]
    if not any(plain(metric) in STEP_NAMES for _, metric in found_columns):
        raise InputError(
            f"{file.name} is an export of a W&B panel over `{shortened(shared)}`, without steps",
            "export it with Step as the x axis",
        )
    return found_columns


def _of_panel(name: str, names: Sequence[str]) -> Column:
    run, _, metric = name.rpartition(BETWEEN)
    bound = any(name.removesuffix(end) in names for end in BOUNDS if name.endswith(end))
    return run, "" if bound else metric
