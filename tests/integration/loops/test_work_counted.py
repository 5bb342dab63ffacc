"""The counted work of a step is the training's: the canary's own operators are not in it."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import canary
from canary.training.exact import operators
from canary.training.exact.signals import ExactSignals
from canary.training.look import Look
from canary.training.loops.trainer import TrainerCollector
from canary.training.trainers import build_trainer
from tests.integration.run.test_recorder import train
from tests.integration.trainers.test_workload import make_spec

pytestmark = pytest.mark.train

CANARY = str(Path(canary.__file__).parent)
TRAINS = f"{CANARY}/training/trainers/"
"""What the canary itself trains: the only code of it whose operators belong to the step."""


def caller() -> str:
    """Return the innermost place, outside torch and wrappers, that called the operator."""
    frame: Any = sys._getframe(2)
    torch_folder = str(Path(torch.__file__).parent)
    while frame is not None:
        file = frame.f_code.co_filename
        line = linecache.getline(file, frame.f_lineno)
        wrapped = "original(" in line or "around(original" in line
        if not wrapped and not file.startswith((torch_folder, operators.__file__, "<")):
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The place of each counted operator."""
    places: list[str] = []
    count = operators._Counting.__torch_dispatch__

    def noting(self: Any, *args: Any, **known: Any) -> Any:
        places.append(caller())
        return count(self, *args, **known)

    monkeypatch.setattr(operators._Counting, "__torch_dispatch__", noting)
    return places


def of_the_canary(places: list[str]) -> list[str]:
    return sorted({p for p in places if p.startswith(CANARY) and not p.startswith(TRAINS)})


@pytest.mark.parametrize("training_type", ["sft", "dpo", "grpo", "ppo"])
def test_a_trainer_counts_no_operator_of_the_canary(
    tmp_path: Path, training_type: str, counted: list[str]
) -> None:
    settings = {"max_new_tokens": 4} if training_type in ("ppo", "grpo") else {}
    spec = make_spec(tmp_path, training_type, 4, batch_size=2, dataset_size=32, **settings)
    trainer = build_trainer(spec)
    exact = ExactSignals(trainer, work_step=3)
    look = Look(3, exact, lambda signals: None)
    collector = TrainerCollector(trainer, lambda row: None, 0, look=look, ends_after_look=True)
    collector.run(trainer.train)
    assert exact.found["work"]["step"] == 3
    assert len(counted) > 100
    assert of_the_canary(counted) == []


def test_a_loop_with_a_recorder_counts_no_operator_of_the_canary(
    tmp_path: Path, counted: list[str]
) -> None:
    record = train(tmp_path, micro=2, clip=1.0)
    assert record.exact["work"]["operator_total"] == len(counted) > 20
    assert of_the_canary(counted) == []
