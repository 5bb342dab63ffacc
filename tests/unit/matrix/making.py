"""Folders of a matrix as its cells leave them, made from real records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from canary.baseline.history import save
from canary.compare.stats import compare_to_baseline
from canary.matrix.answer import answer_of, write_answer
from canary.matrix.attempt import AB, CHECK, ENDED, LOG, RUNS, Attempt
from canary.matrix.cells import Cell
from canary.matrix.document import Verb
from canary.matrix.outcomes import outcome_of
from canary.matrix.running import CELLS, Entry
from canary.record import jsonio
from canary.record.types import RunRecord
from canary.report.document import json_text
from tests.unit.comparing import altered, example, history, records
from tests.unit.pages.making import rows


def of_cell(name: str, record: RunRecord) -> RunRecord:
    """The record as if a cell had made it."""
    return record.model_copy(update={"name": name})


def stored(root: Path, name: str, count: int = 5) -> None:
    """Fill the drawer of a cell with runs of 0.1 s per step."""
    for one in history(count=count):
        save(root, of_cell(name, one))


class Made:
    """A matrix in a folder, made cell by cell."""

    def __init__(self, folder: Path, history: Path | None = None) -> None:
        self.folder, self.history = folder, history
        self.entries: list[Entry] = []

    def place(self, name: str) -> Path:
        """The folder of a cell's only try."""
        made = self.folder / CELLS / name / "1"
        made.mkdir(parents=True, exist_ok=True)
        return made

    def end(self, name: str, verb: Verb, code: int, log: str = "") -> Entry:
        """End a cell: judge what its folder holds."""
        place = self.place(name)
        (place / ENDED).write_text(str(code))
        (place / LOG).write_text(log)
        attempt = Attempt(name, 1, place, ("true",), place, {}, 60.0)
        cell = Cell(name, verb, "one.yaml", ())
        answer = outcome_of(cell, attempt, self.history, save_to=False)
        self.entries.append(Entry(cell, "done", 1, answer))
        return self.entries[-1]

    def run(self, name: str, median_s: float = 0.1, *, steps: int = 0) -> Entry:
        """End a cell that trained, with so many seconds per step."""
        (made,) = records([median_s], first=50)
        leave_run(self.place(name) / RUNS, of_cell(name, made), steps)
        return self.end(name, "run", 0)

    def check(self, name: str, *, broken: bool = False) -> Entry:
        """End a cell that asked the rules; `broken`: of a run whose labels lack EOS."""
        record = of_cell(name, example())
        if broken:
            steps = record.exact["batches"]
            lacking = [[one | {"eos_labels": 0} for one in step] for step in steps]
            record = altered(record, "exact", "batches", to=lacking)
        leave_run(self.place(name) / CHECK, record)
        return self.end(name, "check", int(broken))

    def ab(self, name: str, times: Sequence[float]) -> Entry:
        """End a cell that compared two configs."""
        place = self.place(name) / AB / "ab-20260101-000001"
        before, after = records([0.1] * len(times)), records(times, first=50)
        for one in (*before, *after):
            leave_run(place, one)
        found = compare_to_baseline(after, before)
        (place / "comparison.json").write_text(json_text(found))
        return self.end(name, "ab", found.exit_code())

    def left(self) -> Path:
        """Write the answer; return the folder."""
        write_answer(answer_of(self.entries, "nightly"), self.folder)
        return self.folder


def leave_run(place: Path, record: RunRecord, steps: int = 0) -> None:
    """Leave a run's folder, with so many rows."""
    folder = place / record.run_id
    folder.mkdir(parents=True)
    (folder / "metrics.json").write_text(jsonio.dumps(record.model_dump()))
    lines = [jsonio.dumps(row) + "\n" for row in rows(steps)]
    (folder / "steps.jsonl").write_text("".join(lines))
