"""Real scripts whose values differ from a golden file: is the code to blame, or the machine?"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from canary.golden.schemas import read_golden
from tests.integration.conftest import Finished, canary
from tests.integration.exec.user_scripts import PYTHON, QUIET, sft_script, watched, write_data

pytestmark = pytest.mark.train

STEPS = 4

LOSS = """
import os, torch
original = trainer.compute_loss
def compute_loss(model, inputs, *args, **kwargs):
    {body}
trainer.compute_loss = compute_loss
"""
NOISE = "1e-3 * int.from_bytes(os.urandom(2), 'big') / 65536"
UNSEEDED = LOSS.format(body=f"return original(model, inputs, *args, **kwargs) * (1 + {NOISE})")
ATOMICS = f"""
import os
for parameter in trainer.model.parameters():
    parameter.register_hook(lambda gradient: gradient * (1 + {NOISE}))
"""
"""Gradients that differ from call to call, as a kernel with atomic additions makes them."""
PER_LAUNCH = LOSS.format(
    body="return original(model, inputs, *args, **kwargs) * (1 + shift)"
).replace("original =", f"shift = {NOISE}\noriginal =", 1)


def trained(folder: Path, **script: Any) -> Path:
    """A run of a script under `canary exec`."""
    write_data(folder)
    sft_script(folder, steps=STEPS, **script)
    done = watched(folder, PYTHON, "train.py", options=("--name", "own"))
    assert done.folder is not None, done.err
    return done.folder


def golden(folder: Path, *words: str) -> Finished:
    return canary("golden", *words, cwd=folder, more=dict(QUIET))


def replayed(folder: Path, run: Path, file: Path) -> dict[str, Any]:
    done = golden(folder, "check", str(run), str(file), "--replay", "-q", "--format", "json")
    assert done.code == 1, done.err
    return dict(json.loads(done.out))


def moved(folder: Path, run: Path) -> Path:
    """A golden file of the run, with one loss changed: the run differs from it at step 2."""
    file = folder / "golden.json"
    assert golden(folder, "write", str(run), str(file)).code == 0
    document = json.loads(file.read_text())
    document["metrics"]["loss"]["values"]["2"] *= 1.001
    file.write_text(json.dumps(document))
    return file


def test_a_deterministic_training_leaves_the_blame_with_the_code(tmp_path: Path) -> None:
    """Write, check, a fault in the code, a check with a replay, a refresh of two repeats."""
    first = trained(tmp_path)
    file = tmp_path / "golden.json"
    assert golden(tmp_path, "write", str(first), str(file)).code == 0
    again = trained(tmp_path)
    assert golden(tmp_path, "check", str(again), str(file)).code == 0
    saved = hashlib.sha256((tmp_path / "final" / "model.safetensors").read_bytes()).hexdigest()

    faulty = trained(tmp_path, rate=1e-3)
    kept = hashlib.sha256((tmp_path / "final" / "model.safetensors").read_bytes()).hexdigest()
    assert kept != saved
    found = replayed(tmp_path, faulty, file)

    assert found["verdict"] == "differs"
    assert found["replay"]["verdict"] == "deterministic"
    assert found["replay"]["gives"] == "run"
    assert found["replay"]["steps_twice"] == [1, 2]
    assert any("learning rate" in sentence for sentence in found["cause"])
    # The replay trained, but left the user's files and runs alone.
    now = hashlib.sha256((tmp_path / "final" / "model.safetensors").read_bytes()).hexdigest()
    assert now == kept
    assert len(list((tmp_path / "runs").glob("*/metrics.json"))) == 3

    second = trained(tmp_path, rate=1e-3)
    words = ("refresh", str(faulty), str(second), str(file), "--reason", "twice the rate")
    done = golden(tmp_path, *words, "--accept", "wanted")
    assert done.code == 0, done.err
    assert "The learning rate is 2 times as large" in done.out
    assert golden(tmp_path, "check", str(second), str(file)).code == 0
    assert read_golden(file).history[-1].reason == "twice the rate"


@pytest.mark.parametrize(("before", "where"), [(UNSEEDED, "loss"), (ATOMICS, "gradients")])
def test_a_step_unequal_to_itself_clears_the_code(tmp_path: Path, before: str, where: str) -> None:
    run = trained(tmp_path, before=before)

    found = replayed(tmp_path, run, moved(tmp_path, run))

    assert found["verdict"] == found["replay"]["verdict"] == "not deterministic"
    assert f"differs from itself in {where}" in found["replay"]["message"]
    assert "says nothing about the code" in found["first_line"]
    assert found["cause"] == []


def test_launches_unequal_to_each_other_clear_the_code(tmp_path: Path) -> None:
    """Each step repeats on its state, but each process draws another number."""
    run = trained(tmp_path, before=PER_LAUNCH)

    found = replayed(tmp_path, run, moved(tmp_path, run))

    assert found["verdict"] == "not seeded"
    assert found["replay"]["steps_twice"]
    assert "differ from step 1 on" in found["replay"]["message"]
