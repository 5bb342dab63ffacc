"""What a matrix will do, before it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from canary.matrix.cells import Cell
from canary.matrix.run import plan_lines, planned


def test_a_plan_says_what_its_cells_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text("training_type: sft\nmax_steps: 5\nrepeats: 2\n")
    lines = plan_lines([planned(Cell("one", "run", "a.yaml", ()))])
    assert lines == ["one  run        launches: 2", "1 cell, 2 launches"]
    lines = plan_lines([planned(Cell("a", "ab", "a.yaml", ()))])
    assert lines == ["a  ab         launches: not known", "1 cell"]
