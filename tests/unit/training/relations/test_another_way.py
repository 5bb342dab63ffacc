"""What a process does in another way: workers, dropout, a perturbed start, and a kill."""

from __future__ import annotations

import io
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.utils.data import DataLoader
from torch.utils.data._utils.fetch import _MapDatasetFetcher
from torch.utils.data.dataloader import _BaseDataLoaderIter

from canary.relations.padding import VARIATIONS
from canary.relations.relation import Variation
from canary.training.relations.another_way import AnotherWay


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo afterwards what a launch changes in torch for good."""
    places: list[tuple[Any, str]] = [
        (torch, "save"),
        (torch.serialization, "save"),
        (torch.serialization, "_open_zipfile_writer"),
        (torch.autograd, "backward"),
        (torch, "multinomial"),
        (torch.Tensor, "multinomial"),
        (DataLoader, "__iter__"),
        (_MapDatasetFetcher, "fetch"),
        (_BaseDataLoaderIter, "__next__"),
    ]
    for holder, name in places:
        monkeypatch.setattr(holder, name, getattr(holder, name))
    for name in ("_global_forward_hooks", "_global_forward_pre_hooks"):
        monkeypatch.setattr(torch_module, name, OrderedDict())


def begun(variation: Variation, *, trainer: bool = False) -> AnotherWay:
    """A process that does this."""
    made = AnotherWay()
    made.begin(variation, trainer=trainer)
    return made


class Rows(torch.utils.data.Dataset[torch.Tensor]):
    """Rows of which the process can be seen."""

    def __init__(self, draws: bool = False) -> None:
        self.draws = draws

    def __len__(self) -> int:
        return 8

    def __getitem__(self, place: int) -> torch.Tensor:
        info = torch.utils.data.get_worker_info()
        drawn = torch.rand(1).item() if self.draws else 0.0
        return torch.tensor([place, 0 if info is None else info.num_workers, drawn])


def test_a_loader_gets_workers_whatever_it_was_built_with() -> None:
    loader: Any = DataLoader(Rows(), 2)
    way = begun({"name": "two workers", "workers": 2})
    assert torch.cat([*loader])[:, 1].tolist() == [2] * 8
    assert way.why_not() is None
    assert way.found == {"iterable": False}


def test_a_first_launch_looks_on(tmp_path: Path) -> None:
    way = begun({})
    assert way.found == {"saves": False, "loads": False, "workers": 0}
    loader: Any = DataLoader(Rows(), 2, num_workers=0)
    list(loader)
    torch.save({"a": 1}, tmp_path / "last.pt")
    assert not way.is_killed(2), "only a launch that is to be killed is"
    assert way.found == {"saves": True, "loads": True, "workers": 0, "ranks": False}
    assert way.why_not() is None


def test_a_checkpoint_is_seen_whoever_imported_what_saves(tmp_path: Path) -> None:
    early = torch.save
    way = begun({"name": "killed", "killed": True})
    early({"a": 1}, tmp_path / "before.pt")
    assert not way.is_killed(0), "no update is done"
    assert not way.is_killed(1), "the checkpoint was saved before the first update"
    torch.save({"a": 1}, io.BytesIO())
    assert not way.is_killed(2)
    assert "no checkpoint" in str(way.why_not())
    with (tmp_path / "last.pt").open("wb") as stream:
        torch.save({"a": 1}, stream)
    assert way.is_killed(3)
    assert way.found == {"saved_at": 3, "saved": [str(tmp_path / "last.pt")]}
    assert way.why_not() is None


def test_safetensors_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    monkeypatch.setattr(safetensors, "serialize_file", safetensors.serialize_file)
    early = safetensors.save_file
    way = begun({"name": "killed", "killed": True})
    early({"a": torch.ones(2)}, tmp_path / "model.safetensors")
    assert way.is_killed(1)
    assert way.found["saved"] == [str(tmp_path / "model.safetensors")]


class Net(nn.Module):
    """A model with dropout, of a module and of a rate."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 4)
        self.drop = nn.Dropout(0.5)
        self.attention_dropout = 0.5
        self.constant = 0.0

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        held = nn.functional.dropout(self.drop(self.embed(ids)), self.attention_dropout)
        if self.constant:
            held = nn.functional.dropout(held, 0.5)
        return held.sum()


IDS = torch.tensor([[3, 4, 5, 2], [6, 2, 0, 0]])
WIDER, PLAIN, MOVED = VARIATIONS


def test_dropout_is_off_from_the_first_call_on() -> None:
    model = Net()
    begun(PLAIN)
    assert float(model(IDS)) == float(model(IDS)) == pytest.approx(float(model.embed(IDS).sum()))


def test_parameters_move_once_and_a_reference_alike() -> None:
    torch.manual_seed(0)
    model, reference = Net(), Net()
    reference.load_state_dict(model.state_dict())
    before = model.embed.weight.detach().clone()
    begun(MOVED)
    model(IDS)
    once = model.embed.weight.detach().clone()
    apart = (once - before).abs()
    assert 0 < float(apart.max()) < 1e-5 * float(before.abs().max())
    model(IDS)
    model.embed(IDS)
    assert torch.equal(model.embed.weight, once)
    with torch.no_grad():
        reference(IDS)
    assert torch.equal(reference.embed.weight, once)


def test_wider_batches_enter_the_training() -> None:
    way = begun(WIDER)
    assert way.why_not() == "no DataLoader gives the batches"
    model = Net()
    widths = []
    loader: Any = DataLoader(IDS, 2)  # type: ignore[arg-type]
    for batch in loader:
        widths.append(batch.shape[1])
        model(batch[:, :-1]).backward()
    assert widths == [11]
    assert way.why_not() is None
    with torch.no_grad():
        assert next(iter(loader)).shape[1] == 4, "an evaluation is left as it is"


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("constant", "draws random numbers"),
        ("samples", "samples its rows"),
        ("other", "other rows than the DataLoader gives"),
        ("whole", "no batch of the DataLoader has a padded row"),
    ],
)
def test_a_training_that_depends_on_lengths_rightly_is_not_judged(case: str, words: str) -> None:
    way = begun(WIDER)
    model = Net()
    model.constant = float(case == "constant")
    rows: Any = IDS[:1] if case == "whole" else IDS
    for batch in DataLoader(rows, 2):
        if case == "samples":
            torch.multinomial(torch.ones(2, 5), 1)
        model(torch.cat([batch, batch], 1) if case == "other" else batch).backward()
    assert words in str(way.why_not())
