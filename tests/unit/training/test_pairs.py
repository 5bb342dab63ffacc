"""One run of a pair loads with other workers, saves or resumes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from canary.training.pairs import DRAWN, NO_LOADER, NO_TRAINER, Pair


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Pair:
    """A pair whose changes are undone."""
    monkeypatch.setattr(DataLoader, "__iter__", DataLoader.__iter__)
    monkeypatch.setattr(_MapDatasetFetcher, "fetch", _MapDatasetFetcher.fetch)
    return Pair()


class Stream(IterableDataset[float]):
    def __iter__(self) -> Iterator[float]:
        return iter(torch.rand(4).tolist())


class Drawing:
    """Draws where it loads."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, place: int) -> float:
        return float(torch.rand(()))


def test_loaders_get_other_workers(pair: Pair) -> None:
    pair.begin({"workers": 0})
    loader: Any = DataLoader([1, 2, 3], num_workers=2, persistent_workers=True, timeout=5)
    assert len(list(loader)) == 3
    assert loader.num_workers == 0
    assert pair.why_not() is None


def test_rows_drawn_where_they_are_loaded_cannot_be_compared(pair: Pair) -> None:
    pair.begin({"workers": 0})
    list(DataLoader(Drawing()))  # type: ignore[arg-type]
    assert pair.why_not() == DRAWN


def test_a_stream_may_draw_at_random(pair: Pair) -> None:
    pair.begin({"workers": 0})
    list(DataLoader(Stream()))
    assert pair.why_not() is None


def test_without_a_loader_workers_mean_nothing(pair: Pair) -> None:
    pair.begin({"workers": 2})
    assert pair.why_not() == NO_LOADER


def test_a_trainer_saves_into_the_runs_folder(pair: Pair) -> None:
    pytest.importorskip("transformers")
    pair.begin({"save_at": 2})
    assert pair.why_not() == NO_TRAINER
    trainer = SimpleNamespace(args=SimpleNamespace())
    pair.vary(trainer, Path("run"))
    assert (trainer.args.output_dir, trainer.args.save_steps) == ("run", 2)
    assert pair.why_not() is None


def test_a_run_that_is_not_varied_stays_as_it_is(pair: Pair) -> None:
    before = DataLoader.__iter__
    pair.begin(None)
    assert DataLoader.__iter__ is before
    assert (pair.why_not(), pair.resume) == (None, None)
