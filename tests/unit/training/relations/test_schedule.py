"""The learning rates of a transformers Trainer are those of its arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from canary.relations.relation import Outcome
from canary.training.relations.inspector import Inspector
from tests.unit.training.relations.tiny import batch, llama


def trained(folder: Path, kind: type[Any] | None = None, **changed: Any) -> Outcome:
    """Train six updates; `changed`: arguments, or `optimizers`."""
    from transformers import Trainer, TrainingArguments

    optimizers = changed.pop("optimizers", lambda model: (None, None))
    settings = {"max_steps": 6, "learning_rate": 1e-3, "lr_scheduler_type": "linear", **changed}
    arguments = TrainingArguments(
        str(folder), report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True, **settings
    )
    rows = [
        {"input_ids": line, "labels": line}
        for seed in range(32)
        for line in batch(seed)["input_ids"]
    ]
    model = llama()
    trainer = (kind or Trainer)(model, arguments, train_dataset=rows, optimizers=optimizers(model))
    inspector = Inspector(trainer, ["schedule"])
    trainer.train()
    return inspector.end()[0]


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"lr_scheduler_type": "cosine", "warmup_steps": 2},
        {"gradient_accumulation_steps": 2, "max_steps": 4},
    ],
)
def test_the_rates_of_the_arguments_hold(tmp_path: Path, changed: dict[str, Any]) -> None:
    found = trained(tmp_path, **changed)
    assert found["status"] == "holds", found
    assert "with the configured learning rates" in found["message"]


def test_a_scheduler_of_its_own_is_only_counted(tmp_path: Path) -> None:
    def own(model: Any) -> Any:
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
        return optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer)

    found = trained(tmp_path, optimizers=own)
    assert found["status"] == "holds", found
    assert "arguments" not in found["message"]


def test_a_schedule_of_other_length_is_broken(tmp_path: Path) -> None:
    from transformers import Trainer

    class Longer(Trainer):
        """Counts micro-batches as updates."""

        def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
            return super().create_scheduler(num_training_steps * 4, optimizer)

    found = trained(tmp_path, Longer)
    assert found["status"] == "broken", found
    assert found["place"] == "update 2"
