"""Imported runs behind the gate: stored, compared, and told in the comment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from canary.imports.reading import Asked
from canary.imports.record import import_run
from canary.record.types import RunRecord
from tests.github.gatehouse import Gatehouse
from tests.github.server import GitHub


@pytest.fixture
def house(tmp_path: Path, github: GitHub) -> Gatehouse:
    made = Gatehouse(tmp_path, github)
    made.commit()
    return made


def imported(house: Gatehouse, number: int, loss: float) -> RunRecord:
    """A run of verl's file logger; one with a bad name among its metrics."""
    file = house.root / f"metrics{number}.jsonl"
    rows = [
        {
            "step": step,
            "data": {
                "actor/pg_loss": loss + 0.001 * ((step * 7 + number) % 5),
                "actor/grad_norm": 1.0,
                "critic/score/mean": step / 40,
                "timing_s/step": 2.0 + 0.01 * ((step * 3 + number) % 4),
                "<b>|`\x1b[31m": 1.0,
            },
        }
        for step in range(1, 41)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    name = house.run().name
    return import_run(Asked(file, preset="verl"), house.root / "out", name, "8xH100")[0]


def test_a_worse_imported_run_is_a_regression_in_the_comment(house: Gatehouse) -> None:
    for number in range(3):
        house.push_main(imported(house, number, 0.1))
    assert len(house.entries()) >= 3
    pull = house.pull()
    house.judge(pull, imported(house, 9, 0.3))
    (comment,) = house.comments(pull)
    assert "Regression" in comment.body
    assert "final" in comment.body
    assert "\x1b" not in comment.body
    assert house.status(pull.head_sha)[0] == "failure"


def test_an_equal_imported_run_raises_no_alarm(house: Gatehouse) -> None:
    for number in range(3):
        house.push_main(imported(house, number, 0.1))
    pull = house.pull()
    house.judge(pull, imported(house, 9, 0.1))
    (comment,) = house.comments(pull)
    assert "Regression" not in comment.body
