"""What is shown while a matrix goes on."""

from __future__ import annotations

import io
from pathlib import Path

from canary.matrix.attempt import Attempt
from canary.matrix.cells import Cell
from canary.matrix.outcomes import Outcome
from canary.matrix.plan import Budget, Planned
from canary.matrix.running import Entry, Matrix
from canary.matrix.view import EVERY_S, View, state_line


class Queued:
    """A launcher with a queue."""

    def __init__(self, **reasons: str) -> None:
        self.reasons = reasons

    def queued(self) -> dict[str, str]:
        return self.reasons


def going(tmp_path: Path, seconds: float | None = 60.0, **reasons: str) -> Matrix:
    """A matrix of four: one is ok, one failed, one runs, one waits in the queue."""
    cells = [Cell(name, "run", "a.yaml", ()) for name in "abcd"]
    entries = [Entry(cell) for cell in cells]
    for entry, verdict in zip(entries, ("pass", "error"), strict=False):
        entry.state, entry.outcome = "done", Outcome(verdict, "as it is")  # type: ignore[arg-type]
    plan = [Planned(cell, "2", 1, seconds, None) for cell in cells]
    matrix = Matrix(
        tmp_path,
        entries,
        Queued(**reasons),  # type: ignore[arg-type]
        lambda cell, number: Attempt(cell.name, number, tmp_path, (), tmp_path, {}, 60.0),
        lambda cell, attempt: Outcome("pass", ""),
        budget=Budget(None, plan),
    )
    for entry in entries[2:]:
        matrix._follow(entry, matrix.planned(entry.cell, 1))
    return matrix


def test_the_state_says_what_waits_runs_is_done_and_for_how_long_still(tmp_path: Path) -> None:
    assert state_line(going(tmp_path, d="Nodes\x1b[2J")) == (
        "2 of 4 done · 1 error · c runs · 1 in the queue: Nodes [2J · about 2 min left"
    )


def test_each_end_is_told_once_and_the_state_every_minute(tmp_path: Path) -> None:
    said: list[str] = []
    now = [5.0]
    view, matrix = View(said.append, None, lambda: now[0]), going(tmp_path)
    view.told(matrix)
    view.told(matrix)
    assert said == ["1/4 a: pass: as it is", "2/4 b: error: as it is"]
    now[0] += EVERY_S
    view.told(matrix)
    assert said[2:] == ["2 of 4 done · 1 error · 2 run · about 30 s left"]


def test_on_a_terminal_the_state_is_one_line_that_is_redrawn(tmp_path: Path) -> None:
    said: list[str] = []
    terminal, matrix = io.StringIO(), going(tmp_path)
    view = View(said.append, terminal, lambda: 0.0)
    view.told(matrix)
    view.told(matrix)
    assert terminal.getvalue().count("2 of 4 done") == 1, "it is drawn only if it changes"
    for entry in matrix.entries[2:]:
        entry.state, entry.outcome = "done", Outcome("pass", "late")
    view.told(matrix)
    assert terminal.getvalue().endswith("\r\x1b[K")
    assert len(said) == 4
