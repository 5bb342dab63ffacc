"""What a matrix will do, before it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from canary.matrix.cells import Cell
from canary.matrix.run import Planned, plan_lines, planned
from tests.unit.matrix.making import stored


def test_a_plan_says_what_its_cells_took_last_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text("training_type: sft\nmax_steps: 5\n")
    stored(tmp_path / "history", "one", 1)
    plan = [planned(Cell(name, "run", "a.yaml", ()), tmp_path / "history") for name in ("one", "b")]
    assert plan[0].seconds is not None
    assert [one.launches for one in plan] == [1, 1]
    lines = plan_lines(plan)
    assert lines[0].startswith("one  run        launches: 1, took ")
    assert lines[-1].startswith("2 cells, 2 launches, about ")
    assert lines[-1].endswith(" for 1 of them")


def test_a_verb_decides_its_launches_on_the_way() -> None:
    (line, total) = plan_lines([Planned(Cell("a", "ab", "a.yaml", ()), None, None, "")])
    assert line == "a  ab         launches: not known"
    assert total == "1 cell; the history does not say how long this takes"
