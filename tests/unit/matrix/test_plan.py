"""What a matrix will cost, and what a budget leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest

from canary.matrix.attempt import Attempt
from canary.matrix.cells import Cell
from canary.matrix.launcher import News
from canary.matrix.outcomes import Outcome
from canary.matrix.plan import (
    Budget,
    Planned,
    plan_lines,
)
from canary.matrix.plan import planned as plan_of_cell
from canary.matrix.running import Matrix, entries_of
from canary.matrix.summary import exit_code, first_line
from tests.contract.git_server import git


def planned(name: str, seconds: float | None, devices: int = 1, newest: str = "") -> Planned:
    return Planned(Cell(name, "run", "a.yaml", ()), "2", devices, seconds, newest or None)


class AtOnce:
    """A launcher whose tries end as soon as they are started."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self._new: list[Attempt] = []

    def start(self, attempt: Attempt) -> bool:
        if self._new:
            return False
        self.started.append(attempt.cell)
        self._new.append(attempt)
        return True

    def adopt(self, attempt: Attempt) -> bool:
        return False

    def poll(self) -> list[News]:
        new, self._new = self._new, []
        return [News(one, "ended") for one in new]

    def queued(self) -> dict[str, str]:
        return {}

    def cancel(self) -> None:
        pass

    def wait(self, seconds: float) -> None:
        pass


def ran(tmp_path: Path, plan: list[Planned], minutes: float, took_s: float) -> Matrix:
    """Run a matrix whose cells each take so long."""
    cells = [one.cell for one in plan]
    launcher = AtOnce()
    matrix = Matrix(
        tmp_path,
        entries_of(cells),
        launcher,  # type: ignore[arg-type]
        lambda cell, number: Attempt(cell.name, number, tmp_path, (), tmp_path, {}, 60.0),
        lambda cell, attempt: Outcome("pass", "", seconds=took_s),
        budget=Budget(minutes, plan),
    )
    matrix.run()
    return matrix


def test_a_budget_is_device_minutes() -> None:
    plan = [planned("one", 60.0, devices=4), planned("other", 60.0)]
    assert not Budget(4.9, plan).allows("one", ["other"])
    assert Budget(5.0, plan).allows("one", ["other"])
    assert Budget(None, plan).allows("one", ["other"])


def test_cells_that_do_not_fit_are_left_out_and_said(tmp_path: Path) -> None:
    plan = [planned("a", 60.0), planned("b", 600.0), planned("c", 60.0)]
    matrix = ran(tmp_path, plan, minutes=3.0, took_s=60.0)
    verdicts = [one.outcome.verdict for one in matrix.entries if one.outcome is not None]
    assert verdicts == ["pass", "left out", "pass"]
    assert first_line(matrix.entries) == "3 cells: 1 left out, 2 pass."
    assert exit_code(matrix.entries) == 0


def test_a_budget_for_no_cell_is_no_pass(tmp_path: Path) -> None:
    matrix = ran(tmp_path, [planned("a", 600.0)], minutes=1.0, took_s=60.0)
    assert exit_code(matrix.entries) == 2


def test_without_a_history_the_first_cell_tells_what_the_others_take(tmp_path: Path) -> None:
    """It is started alone, and the others are started while the budget lasts."""
    plan = [planned(name, None) for name in "abcd"]
    matrix = ran(tmp_path, plan, minutes=3.0, took_s=80.0)
    assert matrix.launcher.started == ["a", "b"]  # type: ignore[attr-defined]
    assert Budget(3.0, plan).allows("a", [])
    assert not Budget(3.0, plan).allows("b", ["a"])


def test_a_commit_that_is_not_there_is_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")
    there, gone = (Cell(ref, "run", "a.yaml", (), ref=ref) for ref in ("HEAD", "v9"))
    plan = [plan_of_cell(one, None) for one in (there, gone)]
    assert [one.problem for one in plan] == ["", f"no commit 'v9' in {tmp_path.resolve()}"]
    assert "invalid: no commit 'v9'" in plan_lines(plan, None)[1]
