"""`canary matrix` on real cells: its answer, its history, and a second start."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integration.exec.user_scripts import PYTHON

pytestmark = [pytest.mark.train, pytest.mark.slow]

MATRIX = """
name: small
matrix:
  config: [canary.yaml]
  learning_rate: [1.0e-4, 1.0e-3]
cells:
  - {config: canary.yaml, verb: check, arguments: --quiet}
history: stored
save: true
"""
CANARY = "training_type: sft\nmax_steps: 8\nrepeats: 1\nlook_steps: 2\n"


def matrix(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    command = [PYTHON, "-m", "canary.cli", "matrix", "matrix.yaml", "--format", "json", "-q"]
    done = subprocess.run(
        [*command, *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    return done.returncode, {one["cell"]: one for one in found["cells"]}


def test_each_cell_is_compared_with_its_own_history(tmp_path: Path) -> None:
    (tmp_path / "matrix.yaml").write_text(MATRIX)
    (tmp_path / "canary.yaml").write_text(CANARY)
    code, first = matrix(tmp_path, "-o", "one")
    assert code == 0, first
    names = ["canary-0.0001", "canary-0.001", "canary-check---quiet"]
    assert [*first] == names
    assert "Nothing is wrong" in first[names[2]]["message"]
    assert sorted(one.name for one in (tmp_path / "stored" / "v2").iterdir()) == names[:2]
    code, again = matrix(tmp_path, "-o", "one")
    assert [one["folder"] for one in again.values()] == [one["folder"] for one in first.values()]
    code, second = matrix(tmp_path, "-o", "two")
    assert code == 0, second
    for name in names[:2]:
        assert second[name]["message"].startswith("No baseline yet: this is run 2 of the 3"), second
        assert len([*(tmp_path / "stored" / "v2" / name).rglob("*.json")]) == 2
