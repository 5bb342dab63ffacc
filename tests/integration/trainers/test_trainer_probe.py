"""The probe inside one process, against the trainer's own log where the log can be trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from canary.config.load import load_config
from canary.protocol.spec import WorkloadSpec
from canary.training.loops.trainer import TrainerCollector
from canary.training.trainers import build_trainer
from tests.integration.conftest import STEPS, settings, write_config

pytestmark = pytest.mark.train


@pytest.mark.parametrize("training_type", ["sft", "dpo", "grpo"])
def test_losses_gradients_and_rates_are_those_of_the_trainer(
    tmp_path: Path, training_type: str
) -> None:
    config = load_config(write_config(tmp_path, settings(training_type, max_length=None))).config
    torch.set_num_threads(1)
    spec = WorkloadSpec(config, tmp_path, tmp_path, STEPS, logging_steps=1)
    trainer = build_trainer(spec)
    rows: list[Any] = []
    TrainerCollector(trainer, rows.append, 0)
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(rows) == len(logged) == STEPS
    for row, entry in zip(rows, logged, strict=True):
        # The trainer adds up in float32 and rounds to what it prints.
        assert row["loss"] == pytest.approx(float(entry["loss"]), rel=1e-5, abs=1e-6)
        assert row["grad_norm"] == pytest.approx(float(entry["grad_norm"]), rel=1e-6)
        assert row["learning_rate"] == pytest.approx(float(entry["learning_rate"]), rel=1e-9)
