"""A step that runs twice on the same state: equal to itself, and no trace left in the training."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import Trainer, TrainingArguments

from canary.protocol.job import Twice
from canary.record.step_row import Row
from canary.training.loops.step_twice import StepTwice
from canary.training.loops.trainer import TrainerCollector

pytestmark = [pytest.mark.train, pytest.mark.usefixtures("one_thread")]

STEPS = 5


class Model(nn.Module):
    """Dropout, a buffer that each forward changes, and noise of every shared random stream."""

    def __init__(self, noise: str) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(8, 1)
        self.noise = noise

    def forward(self, values: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        found = self.head(self.dropout(self.norm(self.inner(values)))).squeeze(-1)
        shared = random.random() + float(np.random.rand()) + float(torch.rand(()))
        loss = ((found - labels) ** 2).mean() * (1 + 0.01 * shared)
        own = int.from_bytes(os.urandom(2), "big") / 65536
        if self.noise == "loss":
            loss = loss * (1 + own)
        if self.noise == "gradients":
            self.head.weight.register_hook(lambda gradient: gradient * (1 + own))
        return {"loss": loss}


class Changed(Trainer):
    """Takes a key out of each batch, and counts its steps as online trainers do."""

    taken = 0

    def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        self.taken += 1
        inputs.pop("index")
        loss: torch.Tensor = super().training_step(model, inputs, *args, **kwargs)
        return loss


def trained(folder: Path, twice: bool, noise: str = "") -> tuple[Model, list[Twice], list[Row]]:
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    rows: list[dict[str, Any]] = [
        {"values": torch.randn(8), "labels": torch.randn(()), "index": index}
        for index in range(8 * STEPS)
    ]
    arguments: dict[str, Any] = {
        "output_dir": str(folder),
        "max_steps": STEPS,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "learning_rate": 0.05,
        "max_grad_norm": 0.1,
        "use_cpu": True,
        "report_to": "none",
        "disable_tqdm": True,
        "save_strategy": "no",
        "remove_unused_columns": False,
    }
    model = Model(noise)
    trainer = Changed(model=model, args=TrainingArguments(**arguments), train_dataset=rows)  # type: ignore[arg-type]
    step_twice = StepTwice(trainer, 2, 4) if twice else None
    written: list[Row] = []
    collector = TrainerCollector(
        trainer,
        written.append,
        0,
        is_repeating=lambda: step_twice is not None and step_twice.repeating,
    )
    collector.run(trainer.train)
    assert trainer.taken == 2 * STEPS
    return model, step_twice.found if step_twice else [], written


def test_a_step_equals_itself_and_the_training_goes_on_as_without(tmp_path: Path) -> None:
    model, found, rows = trained(tmp_path / "twice", twice=True)
    plain, _, expected = trained(tmp_path / "once", twice=False)

    assert [(one["step"], one["differs"]) for one in found] == [(2, []), (3, []), (4, [])]
    assert all(one["of"] == 6 for one in found)
    state, other = model.state_dict(), plain.state_dict()
    assert all(torch.equal(state[name], other[name]) for name in state)
    for name in ("loss", "grad_norm", "learning_rate", "micro_losses"):
        assert [row[name] for row in rows] == [row[name] for row in expected]  # type: ignore[literal-required]


@pytest.mark.parametrize(
    ("noise", "differs"),
    [("loss", ["loss", "gradients", "update"]), ("gradients", ["gradients", "update"])],
)
def test_noise_that_no_shared_seed_controls_is_seen(
    tmp_path: Path, noise: str, differs: list[str]
) -> None:
    _, found, _ = trained(tmp_path, twice=True, noise=noise)
    assert found[0]["differs"] == differs
    assert (found[0]["losses"][0] != found[0]["losses"][1]) == (noise == "loss")
    assert "head.weight" in found[0]["named"]
