"""Cells of other verbs, of commits and of environments."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.integration.exec.user_scripts import PYTHON

pytestmark = [pytest.mark.train, pytest.mark.slow]

MATRIX = """
name: verbs
timeout: 20
stacks:
  other: {setup: touch made-by-setup}
cells:
  - {name: before, config: canary.yaml, ref: main~1}
  - {name: after, config: canary.yaml, ref: main, stack: other}
  - {name: pairs, config: canary.yaml, verb: ab, arguments: --base main~1 --exact}
  - {name: noise, config: canary.yaml, verb: calibrate, arguments: --runs 4}
  - {name: imported, config: imported.yaml}
"""
CANARY = "training_type: sft\nlearning_rate: {}\nmax_steps: 6\nrepeats: 1\nlook_steps: 2\n"
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
    (tmp_path / ".gitignore").write_text("out/\ncanary_output/\n")
    for rate in ("1.0e-4", "1.0e-3"):
        (tmp_path / "canary.yaml").write_text(CANARY.format(rate))
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-qm", rate)
    return tmp_path


def test_each_verb_commit_and_environment_is_a_cell(repository: Path) -> None:
    (repository / "matrix.yaml").write_text(MATRIX)
    words = [PYTHON, "-m", "canary.cli", "matrix", "matrix.yaml", "-o", "out", "--format", "json"]
    done = subprocess.run(words, cwd=repository, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    told = {one["cell"]: one for one in json.loads(done.stdout)["cells"]}
    verdicts = {cell: one["verdict"] for cell, one in told.items()}
    assert verdicts == {
        "before": "pass",
        "after": "pass",
        "pairs": "changed",
        "noise": "pass",
        "imported": "pass",
    }, told
    assert "learning_rate" in told["pairs"]["message"]
    rates = {
        cell: json.loads((Path(told[cell]["folder"]) / "metrics.json").read_text())["config"]
        for cell in ("before", "after")
    }
    assert rates["before"]["learning_rate"] == 1e-4
    assert rates["after"]["learning_rate"] == 1e-3
    assert (repository / "made-by-setup").exists(), "the setup ran"
    assert done.returncode == 1
    assert not [*(repository / "out" / "checkouts").glob("*")], "no checkout stays"
    assert (
        subprocess.run(
            ["git", "worktree", "list"], cwd=repository, capture_output=True, text=True, check=True
        ).stdout.count("\n")
        == 1
    )
