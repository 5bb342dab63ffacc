"""Imported runs behind the gate: stored, compared, and told in the comment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from canary.config.load import load_config
from canary.record.types import RunRecord
from canary.runner.display.progress import listener_for
from canary.runner.run import run_canary
from tests.github import gatehouse
from tests.github.gatehouse import Gatehouse
from tests.github.server import GitHub

CONFIG = """
name: tiny
command: [python3, train.py]
import: {source: left.jsonl, format: null, preset: verl}
"""
TRAIN = """
import json, os
loss, number = float(os.environ["LOSS"]), int(os.environ["NUMBER"])
with open("left.jsonl", "w") as file:
    for step in range(1, 41):
        data = {
            "actor/pg_loss": loss + 0.001 * ((step * 7 + number) % 5),
            "actor/grad_norm": 1.0,
            "actor/entropy": None if step == 7 else 0.4,
            "actor/lr": float("inf") if step == 8 else 1e-6,
            "critic/score/mean": step / 40,
            "timing_s/step": 2.0 + 0.01 * ((step * 3 + number) % 4),
            "<b>|`\\x1b[31m": 1.0,
        }
        file.write(json.dumps({"step": step, "data": data}) + "\\n")
"""


@pytest.fixture
def house(tmp_path: Path, github: GitHub, monkeypatch: pytest.MonkeyPatch) -> Gatehouse:
    monkeypatch.setattr(gatehouse, "BASE_CONFIG", CONFIG)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    made = Gatehouse(tmp_path, github)
    made.commit()
    return made


def ran(number: int, loss: float, config: str = CONFIG) -> RunRecord:
    """A run of a command with verl's file logger; one of its metrics has a bad name."""
    os.environ |= {"LOSS": str(loss), "NUMBER": str(number)}
    Path("canary.yaml").write_text(config, encoding="utf-8")
    with Path(os.devnull).open("w") as quiet:
        loaded = load_config("canary.yaml")
        record = run_canary(loaded, listener_for(quiet, True), Path("out"))[0]
    assert record.status == "completed", record.reason
    return record


def test_a_worse_imported_run_is_a_regression_in_the_comment(house: Gatehouse) -> None:
    for number in range(3):
        house.push_main(ran(number, 0.1))
    assert len([name for name in house.entries() if "-tiny-" in name]) == 3
    pull = house.pull()
    house.judge(pull, ran(9, 0.3))
    (comment,) = house.comments(pull)
    assert "Regression" in comment.body
    assert "the model learns worse" in comment.body
    assert "\x1b" not in comment.body
    assert house.status(pull.head_sha)[0] == "failure"


def test_an_equal_imported_run_raises_no_alarm(house: Gatehouse) -> None:
    house.store(*(ran(number, 0.1) for number in range(3)))
    pull = house.pull()
    house.judge(pull, ran(9, 0.1))
    (comment,) = house.comments(pull)
    assert "Regression" not in comment.body
    assert "Error" not in comment.body


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (CONFIG.replace("preset: verl", "preset: none"), "was not read as `import`"),
        (CONFIG.replace("format: null", "format: jsonl"), "was not read as `import`"),
    ],
)
def test_a_record_of_another_source_is_an_error(house: Gatehouse, config: str, said: str) -> None:
    pull = house.pull()
    house.judge(pull, ran(9, 0.1, config))
    assert said in house.comments(pull)[0].body.replace("\\", "")
    assert house.status(pull.head_sha)[0] == "error"


def test_an_imported_record_of_a_watched_canary_is_an_error(
    house: Gatehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gatehouse, "BASE_CONFIG", "name: tiny\ncommand: [python3, train.py]\n")
    house.commit()
    pull = house.pull()
    house.judge(pull, ran(9, 0.1))
    assert "has no `import`" in house.comments(pull)[0].body.replace("\\", "")
    assert house.status(pull.head_sha)[0] == "error"
