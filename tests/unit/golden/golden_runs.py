"""Folders of runs with chosen values, and golden files of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from canary.golden.measured import MeasuredRun, measured_run
from canary.record import jsonio
from canary.record.types import RunRecord
from tests.unit.comparing import committed, example

LOSSES = (2.5, 1.25, 0.953125, 0.8125, 0.75)
NORMS = (4.0, 3.5, 3.25, 3.0, 2.5)
FIELDS = {"step_time_s": "wall_s", "max_memory_bytes": "peak_bytes"}
"""Fields of a row for metrics that do not stand there under their name."""
IN_ROW = ("loss", "grad_norm", "learning_rate", *FIELDS)


def run_folder(
    root: Path,
    name: str = "run-1",
    values: Mapping[str, Sequence[Any]] | None = None,
    *,
    of: RunRecord | None = None,
    launches: Sequence[Mapping[str, Sequence[Any]]] = (),
    first: int = 1,
    sha: str = "a" * 40,
    dirty: bool = False,
) -> Path:
    """A completed run. `values`: metric -> value per step; `launches`: the same of further ones;
    `first`: the first step."""
    chosen = {"loss": LOSSES, "grad_norm": NORMS} if values is None else values
    folder = root / name
    folder.mkdir(parents=True)
    whole = committed(example() if of is None else of, sha, dirty=dirty)
    record = whole.model_copy(update={"run_id": name})
    (folder / "metrics.json").write_text(jsonio.dumps(record.model_dump()))
    rows = [
        row
        for number, one in enumerate((chosen, *launches), 1)
        for row in _rows(number, one, first)
    ]
    (folder / "steps.jsonl").write_text("".join(jsonio.dumps(row) + "\n" for row in rows))
    return folder


def _rows(launch: int, values: Mapping[str, Sequence[Any]], first: int) -> list[dict[str, Any]]:
    rows = []
    for place in range(max(map(len, values.values()))):
        at = {name: one[place] for name, one in values.items() if place < len(one)}
        row: dict[str, Any] = {"launch": launch, "step": first + place, "wall_s": 0.1, "rl": {}}
        for name, value in at.items():
            if name in IN_ROW:
                row[FIELDS.get(name, name)] = value
            else:
                row["rl"][name] = value
        rows.append(row)
    return rows


def run(root: Path, name: str = "run-1", *args: Any, **rest: Any) -> MeasuredRun:
    """The same, loaded."""
    return measured_run(run_folder(root, name, *args, **rest))


def shifted(values: Sequence[float], by: float, at: int = 2) -> tuple[float, ...]:
    """The values with one changed."""
    return tuple(value + by * (place == at) for place, value in enumerate(values))
