"""`canary bisect` on a small loop of plain torch, through the real command line."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.conftest import Finished, canary

pytestmark = [pytest.mark.train, pytest.mark.slow]

LOOP = """
import torch
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr={rate})
for step in range(12):
    loss = model(torch.randn(16, 8)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
CONFIG = f"""
name: loop
command: [{sys.executable}, train.py]
metrics_warmup_steps: 2
look_steps: 6
threads: 1
"""
CULPRIT, BROKEN = 5, 3


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight commits: the config of one is broken, a later one raises the learning rate."""
    root = tmp_path_factory.mktemp("bisect") / "theirs"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    git(root, "config", "user.email", "a@example.org")
    git(root, "config", "user.name", "A")
    (root / ".gitignore").write_text("canary_output/\n")
    for number in range(9):
        rate = 0.02 if number >= CULPRIT else 0.01
        (root / "train.py").write_text(LOOP.format(rate=rate) + f"# {number}\n")
        (root / "canary.yaml").write_text(CONFIG + "nonsense: 1\n" * (number == BROKEN))
        git(root, "add", "-A")
        git(root, "commit", "-qm", f"commit {number}")
    return root


ARGUMENTS = ("bisect", "canary.yaml", "--good", "HEAD~8", "--check", "first_update")


@pytest.fixture(scope="module")
def finished(repository: Path) -> tuple[Finished, Path]:
    """A bisect that is killed in the middle of a run, and then goes on."""
    command = [sys.executable, "-m", "canary.cli", *ARGUMENTS]
    child = subprocess.Popen(command, cwd=repository, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    for line in child.stderr:
        if line.startswith("run 1 "):
            break
    time.sleep(1.0)
    child.send_signal(signal.SIGKILL)
    child.wait()
    return canary(*ARGUMENTS, "--format", "json", cwd=repository), repository


def test_the_commit_is_found_with_its_line_after_a_kill(
    finished: tuple[Finished, Path],
) -> None:
    ended, root = finished
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert found["culprit"]["sha"] == git(root, "rev-parse", f"HEAD~{8 - CULPRIT}")
    (stage,) = found["stages"]
    assert stage["last_step"]["confirmed"]
    assert "continuing with" in ended.err
    states = [(run["stage"], run["label"]) for run in stage["runs"]]
    assert len(stage["search"]) <= 5
    assert len([kind for kind, _ in states if kind == "search"]) == len(stage["search"])


def test_the_answer_and_its_comparison_are_in_the_folder(finished: tuple[Finished, Path]) -> None:
    ended, root = finished
    (folder,) = root.glob("canary_output/bisect-*")
    assert json.loads((folder / "bisect.json").read_text()) == json.loads(ended.out)
    assert (folder / "bisect.txt").read_text().startswith("Found: ")
    assert (folder / "bisect.md").read_text().startswith("**Found: ")
    assert json.loads((folder / "comparison.json").read_text())["verdict"] == "changed"
    listed = canary("list", cwd=root)
    assert listed.code == 0


def test_ctrl_c_leaves_nothing_and_says_how_to_continue(repository: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    shutil.copytree(repository, clone, ignore=shutil.ignore_patterns("canary_output"))
    command = [sys.executable, "-m", "canary.cli", *ARGUMENTS, "-o", str(tmp_path / "out")]
    environment = os.environ | {"TMPDIR": str(tmp_path / "temporary")}
    (tmp_path / "temporary").mkdir()
    child = subprocess.Popen(command, cwd=clone, stderr=subprocess.PIPE, text=True, env=environment)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "out").glob("*/*/log.txt")) and time.monotonic() < deadline:
        time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=120)
    assert child.returncode == 4
    assert "to continue: " in err
    assert "-o" in err.partition("to continue: ")[2]
    assert err.splitlines()[-1] == "canary: interrupted"
    assert not list((tmp_path / "temporary").glob("canary-bisect-*"))
    assert len(git(clone, "worktree", "list").splitlines()) == 1
