"""Cells of other verbs and of environments."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.exec.user_scripts import PYTHON

pytestmark = [pytest.mark.train, pytest.mark.slow]

MATRIX = """
name: verbs
timeout: 20
stacks:
  other: {python: ./own-python}
cells:
  - {name: after, config: canary.yaml, stack: other}
  - {name: imported, config: imported.yaml}
"""
CANARY = "training_type: sft\nlearning_rate: {}\nmax_steps: 12\nrepeats: 1\nlook_steps: 2\n"
IMPORTED = """
name: imported
command: [sh, -c, 'for i in 1 2 3 4 5 6; do echo "it $i loss 0.$i"; done']
import: {source: "-", preset: own.yaml}
"""
OWN = """
framework: own
step: [iteration]
metrics: {loss: [loss]}
console:
  - line: 'it (?P<step>\\d+) loss (?P<loss>\\S+)'
"""


def git(folder: Path, *words: str) -> None:
    named = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *named, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "imported.yaml").write_text(IMPORTED)
    (tmp_path / "own.yaml").write_text(OWN)
    (tmp_path / ".gitignore").write_text("out/\ncanary_output/\nown-python*\n")
    own = tmp_path / "own-python"
    own.write_text(f'#!/bin/sh\ntouch own-python-ran\nexec "{sys.executable}" "$@"\n')
    own.chmod(0o755)
    for rate in ("1.0e-4", "1.0e-3"):
        (tmp_path / "canary.yaml").write_text(CANARY.format(rate))
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-qm", rate)
    return tmp_path


def test_each_verb_and_environment_is_a_cell(repository: Path) -> None:
    (repository / "matrix.yaml").write_text(MATRIX)
    words = [PYTHON, "-m", "canary.cli", "matrix", "matrix.yaml", "-o", "out", "--format", "json"]
    done = subprocess.run(words, cwd=repository, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    told = {one["cell"]: one for one in json.loads(done.stdout)["cells"]}
    verdicts = {cell: one["verdict"] for cell, one in told.items()}
    assert verdicts == {
        "after": "pass",
        "imported": "pass",
    }, told
    record = json.loads((Path(told["after"]["folder"]) / "metrics.json").read_text())
    assert record["config"]["learning_rate"] == 1e-3
    assert (repository / "own-python-ran").exists()
    assert done.returncode == 0
