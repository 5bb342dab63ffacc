"""What `canary exec --exact` leaves out: all that comes after the look."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from canary.record.folder import load_record
from tests.integration.conftest import canary

pytestmark = pytest.mark.train

PLAIN = """
import atexit, torch
atexit.register(open, "handler", "w")
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
try:
    for row in torch.ones(40, 8, 4):
        model(row).square().mean().backward()
        optimizer.step()
finally:
    open("finally", "w")
"""
RECORDED = """
import torch
from canary import Recorder
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with Recorder("loop", model=model, optimizer=optimizer) as recorder:
    for row in recorder.batches(torch.ones(40, 8, 4)):
        with recorder.step(row) as step:
            loss = model(row).square().mean()
            step.loss(loss)
            loss.backward()
            optimizer.step()
open("after", "w")
"""


@pytest.mark.parametrize("script", [PLAIN, RECORDED], ids=["plain", "recorded"])
def test_nothing_runs_after_the_look(tmp_path: Path, script: str) -> None:
    (tmp_path / "loop.py").write_text(script)
    shell = f"{sys.executable} loop.py; touch later"
    words = ("exec", "--exact", "--set", "look_steps=3", "-o", "out", "--", "bash", "-c", shell)
    assert canary(*words, cwd=tmp_path).code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loop.py", "out"]
    (run,) = (tmp_path / "out").glob("*loop*")
    assert load_record(run).exact["steps"] == 3


def test_a_failure_within_the_look_has_the_commands_code(tmp_path: Path) -> None:
    """As without `--exact`."""
    (tmp_path / "train.py").write_text(PLAIN.replace("optimizer.step()", "optimizer.step(); 1 / 0"))
    done = canary("exec", "--exact", "--", sys.executable, "train.py", cwd=tmp_path)
    assert done.code == 1, done.err
    assert "ZeroDivisionError" in done.err


@pytest.mark.parametrize("leaving", ["raise SystemExit(3)", "__import__('os')._exit(3)"])
def test_an_exit_before_the_look_is_over_has_the_commands_code(
    tmp_path: Path, leaving: str
) -> None:
    (tmp_path / "train.py").write_text(
        PLAIN.replace("optimizer.step()", f"optimizer.step(); {leaving}")
    )
    done = canary("exec", "--exact", "-o", "out", "--", sys.executable, "train.py", cwd=tmp_path)
    assert done.code == 3, done.err
    (run,) = (tmp_path / "out").glob("*train*")
    assert load_record(run).status == "failed"


def test_a_short_training_that_ends_well_is_complete(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PLAIN.replace("torch.ones(40", "torch.ones(4"))
    done = canary("exec", "--exact", "-o", "out", "--", sys.executable, "train.py", cwd=tmp_path)
    assert done.code == 0, done.err
    (run,) = (tmp_path / "out").glob("*train*")
    record = load_record(run)
    assert (record.status, record.exact["steps"]) == ("completed", 4)
