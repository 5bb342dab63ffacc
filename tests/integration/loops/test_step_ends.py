"""Where a step ends: what its callbacks, its logs and its checkpoints take is its own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from transformers import TrainerCallback

from canary.training.look import no_look
from canary.training.loops.trainer import TrainerCollector
from canary.training.trainers import build_trainer
from tests.integration.trainers.test_workload import make_spec

pytestmark = [pytest.mark.train, pytest.mark.usefixtures("one_thread")]

SLOW_S = 0.25


class Slow(TrainerCallback):
    """Takes its time at one event of each step from the second on: begin, end, log, save."""

    def __init__(self) -> None:
        self.saved: list[int] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        if state.global_step == 1:
            time.sleep(SLOW_S)

    def on_step_end(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        control.should_log = True
        control.should_save = state.global_step == 5
        if state.global_step == 3:
            time.sleep(SLOW_S)

    def on_log(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        if state.global_step == 4:
            time.sleep(SLOW_S)

    def on_save(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        self.saved.append(state.global_step)
        time.sleep(SLOW_S)


def test_what_is_slow_at_the_end_of_a_step_is_timed_in_that_step(tmp_path: Path) -> None:
    trainer = build_trainer(make_spec(tmp_path, "sft", 6, batch_size=2, dataset_size=32))
    slow = Slow()
    trainer.add_callback(slow)
    rows: list[Any] = []
    collector = TrainerCollector(trainer, rows.append, 0, look=no_look())
    collector.run(trainer.train)
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert slow.saved == [5]
    _, begun, ended, logged, saved, last = rows
    assert begun["phases"]["other"] >= SLOW_S
    assert ended["wall_s"] >= SLOW_S
    assert logged["phases"]["logging"] >= SLOW_S
    assert saved["phases"]["logging"] >= SLOW_S
    assert saved["phases"]["checkpoint"] > 0
    assert "checkpoint" not in last["phases"]
    for row in rows:
        assert sum(row["phases"].values()) == pytest.approx(row["wall_s"])


class Evaluates(TrainerCallback):
    """By itself, in the middle of a training."""

    trainer: Any

    def on_step_end(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        control.should_evaluate = state.global_step == 3
        if state.global_step == 2:
            self.trainer.evaluate()


def test_an_evaluation_is_a_phase_of_its_own_however_it_is_called(tmp_path: Path) -> None:
    trainer = build_trainer(make_spec(tmp_path, "sft", 4, batch_size=2, dataset_size=32))
    trainer.eval_dataset = trainer.train_dataset
    trainer.add_callback(own := Evaluates())
    own.trainer = trainer
    rows: list[Any] = []
    TrainerCollector(trainer, rows.append, 0, look=no_look()).run(trainer.train)
    assert [row["step"] for row in rows if row["phases"].get("evaluation")] == [2, 3]
    plain, by_callback, by_control, _ = rows
    for row in (by_callback, by_control):
        assert row["phases"]["evaluation"] > 2 * row["phases"]["forward"]
        assert row["input_tokens"] < 4 * plain["input_tokens"], "no batch of it is trained on"
        assert sum(row["phases"].values()) == pytest.approx(row["wall_s"])
