"""What data workers report: real workers of tiny loaders."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info
from torch.utils.data._utils import fetch

from canary.record.facts import Facts, LoaderFacts
from canary.training.facts.loaders import LoaderWorkers, State, generators_of, state_of

SHARED = np.random.default_rng(3)


class Rows(Dataset[torch.Tensor]):
    """Eight rows with noise from `draw`."""

    def __init__(self, draw: Callable[[Any, int], float]) -> None:
        self.draw = draw
        self.rng = np.random.default_rng(0)
        self.old = np.random.RandomState(0)
        self.own = torch.Generator().manual_seed(0)
        self.plain = random.Random(0)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, at: int) -> torch.Tensor:
        return torch.tensor([float(at), self.draw(self, at)])


def _seeded(rows: Any, at: int) -> float:
    rows.old.seed(at)
    rows.plain.seed(at)
    rows.own.manual_seed(at)
    return float(rows.old.random() + rows.plain.random())


def _seeded_alike(rows: Any, at: int) -> float:
    """Noise that is the same for each row, as of a deterministic transform."""
    rows.old.seed(7)
    return float(rows.old.random())


def _replaced(rows: Any, at: int) -> float:
    rows.rng = np.random.default_rng(at)
    return float(rows.rng.random())


def _set_up_once(rows: Any, at: int) -> float:
    if not hasattr(rows, "order"):
        rows.order = rows.rng.permutation(8)
    return float(rows.order[at])


def told(dataset: Any, **arguments: Any) -> list[LoaderFacts]:
    watcher = LoaderWorkers()
    watcher.begin()
    rows = list(DataLoader(dataset, batch_size=2, num_workers=2, **arguments))
    watcher.end()
    assert rows
    facts: Facts = {}
    watcher.tell(facts, {})
    return facts.get("loaders", [])


COPIES: list[tuple[str, Callable[[Any, int], float]]] = [
    ("dataset.rng", lambda rows, _: rows.rng.random()),
    ("dataset.old", lambda rows, _: rows.old.random(2000)[0]),
    ("dataset.own", lambda rows, _: float(torch.rand(1, generator=rows.own))),
    ("dataset.plain", lambda rows, _: rows.plain.random()),
    ("SHARED", lambda rows, _: SHARED.random()),
    ("dataset.rng", lambda rows, at: float(rows.rng.random(1 + at).sum())),
]


@pytest.mark.parametrize(("name", "draw"), COPIES)
def test_a_generator_that_workers_copy_is_drawn_from_twice(
    name: str, draw: Callable[[Any, int], float]
) -> None:
    (found,) = told(Rows(draw))
    assert found["draw_the_same"] == [name]
    assert (found["workers"], found["seen"], found["stream"]) == (2, 2, False)


SOUND: list[Callable[[Any, int], float]] = [
    lambda rows, _: np.random.random(),
    lambda rows, _: random.random(),
    lambda rows, _: float(torch.rand(1)),
    lambda rows, at: float(np.random.default_rng(at).random()),
    _seeded,
    _seeded_alike,
    _replaced,
    _set_up_once,
    lambda rows, at: float(at),
]


@pytest.mark.parametrize("draw", SOUND)
def test_generators_that_torch_seeds_or_that_a_row_seeds_are_no_copies(
    draw: Callable[[Any, int], float],
) -> None:
    (found,) = told(Rows(draw))
    assert found["draw_the_same"] == []


def test_one_seed_for_all_workers_is_a_copy() -> None:
    rows = Rows(lambda rows, _: np.random.random())
    (found,) = told(rows, worker_init_fn=lambda _: np.random.seed(1))
    assert found["draw_the_same"] == ["numpy.random"]


def test_an_evaluation_without_gradients_may_repeat_its_numbers() -> None:
    with torch.no_grad():
        assert told(Rows(lambda rows, _: rows.rng.random())) == []


class Stream(IterableDataset[torch.Tensor]):
    """Rows that each worker gives, or only its part of them."""

    def __init__(self, *, split: bool, constant: bool = False) -> None:
        self.split, self.constant = split, constant

    def __iter__(self) -> Iterator[torch.Tensor]:
        worker = get_worker_info()
        assert worker is not None
        for at in range(16):
            if not self.split or at % worker.num_workers == worker.id:
                yield torch.tensor([0 if self.constant else at])


def test_a_stream_that_each_worker_reads_whole_is_seen() -> None:
    assert [one["same_rows"] for one in told(Stream(split=False))] == [True]
    assert [one["same_rows"] for one in told(Stream(split=True))] == [False]
    assert [one["same_rows"] for one in told(Stream(split=False, constant=True))] == [False]


def test_rows_and_states_are_those_of_a_run_without_the_watcher() -> None:
    def rows(*, watched: bool) -> tuple[list[torch.Tensor], Any]:
        torch.manual_seed(5)
        watcher = LoaderWorkers()
        if watched:
            watcher.begin()
        loader = DataLoader(Rows(lambda one, _: one.rng.random() + np.random.random()), 2)
        found = list(loader) + list(DataLoader(loader.dataset, 2, num_workers=2))
        watcher.end()
        return found, torch.get_rng_state().tolist()

    np.random.seed(0)
    alone = rows(watched=False)
    np.random.seed(0)
    watched = rows(watched=True)
    assert all(map(torch.equal, alone[0], watched[0]))
    assert alone[1] == watched[1]


def test_nothing_is_left_behind() -> None:
    before = fetch._MapDatasetFetcher.fetch, fetch._IterableDatasetFetcher.fetch
    files = len([*Path("/proc/self/fd").iterdir()])
    watcher = LoaderWorkers()
    watcher.begin()
    watcher.begin()
    watcher.end()
    watcher.end()
    assert before == (fetch._MapDatasetFetcher.fetch, fetch._IterableDatasetFetcher.fetch)
    assert len([*Path("/proc/self/fd").iterdir()]) == files


def test_a_loader_without_workers_tells_nothing() -> None:
    watcher = LoaderWorkers()
    watcher.begin()
    assert len(list(DataLoader(Rows(lambda rows, _: rows.rng.random()), batch_size=2))) == 4
    watcher.end()
    facts: Facts = {}
    watcher.tell(facts, {})
    assert facts == {}


def test_a_dataset_that_cannot_be_searched_still_gives_its_rows() -> None:
    class Odd(Rows):
        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            raise RuntimeError("no")

    (found,) = told(Odd(lambda rows, at: float(at)))
    assert found["draw_the_same"] == []


def test_a_cycle_of_objects_is_searched_once() -> None:
    rows: Any = Rows(lambda one, at: 0.0)
    rows.itself = [rows]
    names = {"random", "torch", "numpy.random"}
    names |= {f"dataset.{one}" for one in ("rng", "old", "own", "plain")}
    assert names <= generators_of({"dataset": rows}).keys()


def test_an_unknown_bit_generator_has_no_state_to_compare() -> None:
    assert state_of(np.random.Generator(np.random.SFC64(0))) is None
    state = state_of(np.random.Generator(np.random.Philox(0)))
    assert isinstance(state, State)
