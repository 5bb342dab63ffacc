"""`canary check` as a user starts it: on a command, on a config, and as pairs of looks."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from canary.cli import main
from tests.integration.exec.user_scripts import PYTHON

LOOP = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(40, 16), nn.Linear(16, 40))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(14):
    ids = torch.randint(1, 40, (4, 9))
    loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    print(step, loss.item())
"""
CONFIG = """
training_type: sft
max_steps: 8
batch_size: 2
gradient_accumulation_steps: 2
"""


def checked(folder: Path, *words: str) -> tuple[int, str, str]:
    """Run `canary check`; return its exit code and both streams."""
    command = [PYTHON, "-m", "canary.cli", "check", "-q", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def rules(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """Run `canary check` with its JSON; return its exit code and the rules by id."""
    code, out, err = checked(folder, "--format", "json", *words)
    assert out, err
    return code, {one["rule"]: one for one in json.loads(out)["rules"]}


@pytest.mark.train
@pytest.mark.end_to_end
def test_a_loop_that_never_empties_its_gradients_is_broken(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOOP)
    code, out, _ = checked(tmp_path, "--", PYTHON, "train.py")
    assert code == 1
    assert out.startswith("Broken: ")
    assert "gradients_start_empty: " in out
    assert "zero_grad" in out


@pytest.mark.train
@pytest.mark.slow
def test_a_config_is_asked_everything_and_pairs_learn_the_same(tmp_path: Path) -> None:
    (tmp_path / "canary.yaml").write_text(CONFIG)
    code, found = rules(tmp_path, "canary.yaml")
    assert code == 0, found
    asked = {name for name, one in found.items() if one["status"] == "holds"}
    assert asked >= {"causality", "padding_side", "neighbour", "optimizer_holds_trainable"}
    for words in (("--workers", "2"), ("--resume",)):
        code, out, err = checked(tmp_path, *words, "canary.yaml")
        assert code == 0, out + err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--workers", "0", "canary.yaml"), "--workers must be at least 1, got 0"),
        (("train.py",), "train.py is not a config"),
        (("a.yaml", "b.yaml"), "canary check takes one config"),
        (("--set", "check.disable=[no_such]"), "there is no rule 'no_such'"),
    ],
)
def test_a_wrong_use_is_one_line(
    words: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("canary.yaml").write_text(CONFIG)
    with pytest.raises(SystemExit) as ended:
        main(["check", "-q", *words])
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert said in err
    assert err.count("\n") <= 2
