"""Models in 4 and 8 bits under adapters, on the CPU too, for every trainer."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from canary.compare.rules.parameters import ZERO_GRADIENT_AT_START
from canary.config.schema import ONLINE_TRAINERS
from canary.training.exact.signals import ExactSignals
from canary.training.look import Look
from canary.training.loops.trainer import TrainerCollector
from canary.training.trainers import build_trainer
from tests.integration.trainers.test_workload import make_spec

pytestmark = [pytest.mark.train, pytest.mark.usefixtures("one_thread")]

PACKED = {"load_in_4bit": "torch.uint8", "load_in_8bit": "torch.int8"}
LINEAR_LAYERS = 21
"""Of `embedded/tiny`: seven in each of three layers; head and embedding stay whole."""


@pytest.mark.parametrize(
    ("training_type", "key"),
    [("reward", "load_in_8bit"), *((kind, "load_in_4bit") for kind in ("dpo", "grpo", "ppo"))],
)
def test_every_trainer_trains_an_adapter_over_packed_weights(
    tmp_path: Path, training_type: str, key: str
) -> None:
    pytest.importorskip("bitsandbytes", reason="the extra `quantization` is not installed")
    changes: dict[str, Any] = {key: True, "use_peft": True, "temperature": 1.5}
    if training_type not in ONLINE_TRAINERS:
        del changes["temperature"]
    trainer = build_trainer(make_spec(tmp_path, training_type, **changes))
    rows: list[Any] = []
    exact = ExactSignals(trainer)
    look = Look(3, exact, lambda signals: None)
    TrainerCollector(trainer, rows.append, 0, look=look, ends_after_look=True)
    trainer.train()
    assert len(rows) == 3
    assert all(math.isfinite(row["loss"]) for row in rows)
    found = exact.found
    assert found["model"]["dtypes"][PACKED[key]] == LINEAR_LAYERS
    assert found["frozen"]["changed"] == []
    still = found["first_update"]["tensors_unchanged"]
    if training_type not in ONLINE_TRAINERS:  # a group of equal rewards teaches nothing
        assert all(any(part in name for part in ZERO_GRADIENT_AT_START) for name in still)
    if training_type == "reward":
        heads = [p for name, p in trainer.model.named_parameters() if "modules_to_save" in name]
        assert {head.dtype for head in heads} == {torch.float32}
    if training_type == "dpo":
        assert rows[0]["loss"] == pytest.approx(math.log(2), abs=1e-5)
