"""Settings as they stand: evidence that names what changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from canary.training.collectors.batches import row_hashes
from canary.training.exact.effective import (
    LOSSES,
    describe_training,
    effective_settings,
    own_method,
    plain,
)
from canary.training.recorder.loop import Loop


@dataclass
class Arguments:
    files: list[str] = field(default_factory=list)


class Trainer:
    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.25))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, weight_decay=0.02)
        self.beta = 0.1
        self.api_key = "secret"
        self.folder = "/somewhere/of/mine"
        self.data_collator: Any = SimpleNamespace(max_length=64)

    def compute_loss(self, inputs: Any) -> Any:
        return inputs * self.beta


def test_settings_are_those_in_force_and_no_secret_or_place() -> None:
    trainer = Trainer()
    trainer.beta = 0.01
    found = effective_settings(trainer)
    assert found["trainer.beta"] == 0.01
    assert found["collator.max_length"] == 64
    assert found["optimizer.class"] == "AdamW"
    assert found["optimizer.0.weight_decay"] == 0.02
    assert found["optimizer.0.tensors"] == 2
    assert found["modules.dropout"] == [0.25]
    assert not [name for name in found if "api_key" in name or "folder" in name]


def test_a_path_in_the_checkout_is_relative_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two checkouts of one commit have the same settings; `ab` has one per side."""
    found = []
    for side in ("base", "head"):
        below = tmp_path / side / "sft"
        (tmp_path / side / ".git").mkdir(parents=True)
        below.mkdir()
        monkeypatch.chdir(below)
        loop = Loop("own", settings={"model_name": str(below / "model"), "data": below / "a.json"})
        found.append(loop.describe())
        trainer = SimpleNamespace(model=nn.Linear(1, 1), args=Arguments([str(below / "b.json")]))
        trainer.model.config = SimpleNamespace(_name_or_path=str(below / "model"))
        found[-1] |= {"trained": describe_training(trainer)}
    assert found[0] == found[1]
    assert (found[0]["model_name"], found[0]["arguments"]) == ("sft/model", {"data": "sft/a.json"})
    trained = found[0]["trained"]
    assert (trained["model_name"], trained["arguments"]["files"]) == ("sft/model", ["sft/b.json"])
    assert plain(str(tmp_path / "elsewhere")) == str(tmp_path / "elsewhere")


def test_a_loss_of_the_users_is_named_and_one_of_a_library_is_not() -> None:
    assert own_method(Trainer(), LOSSES) == "compute_loss"
    of_torch = SimpleNamespace(compute_loss=nn.functional.cross_entropy)
    assert own_method(of_torch, LOSSES) is None


@pytest.mark.parametrize("side", ["left", "right"])
def test_rows_have_one_hash_however_they_are_padded(side: str) -> None:
    ids, mask = torch.tensor([[5, 6, 0]]), torch.tensor([[1, 1, 0]])
    if side == "left":
        ids, mask = ids.roll(1), mask.roll(1)
    plain = row_hashes({"input_ids": torch.tensor([[5, 6]]), "attention_mask": torch.ones(1, 2)})
    assert row_hashes({"input_ids": ids, "attention_mask": mask}) == plain
    completions = {"completion_ids": ids, "completion_mask": mask}
    assert row_hashes(completions)["completion_ids"] == plain["input_ids"]
