"""Changes what every `DataLoader` of a process does: how many workers load, and what it gives."""

from __future__ import annotations

import functools
import pickle
import random
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data._utils.fetch import _MapDatasetFetcher
from torch.utils.data.dataloader import _BaseDataLoaderIter

from canary.record.exact import Share

PREFETCHED = 2
"""Batches that each worker loads ahead: the default of torch."""


class LoaderWorkers:
    """Lets each loader begin with a number of workers, and notes what the loaders are like."""

    def __init__(self, workers: int | None) -> None:
        """`workers`: None leaves them as they are."""
        self._workers = workers
        self.loaders = 0
        """Loaders that began."""
        self.most = 0
        """Their workers at most, as they were."""
        self.shares: list[Share] = []
        """How samplers of torch share rows among ranks: the first of each dataset's size."""
        self.is_iterable = False
        """Whether a dataset is a stream: each worker splits it by itself."""
        self.draws = False
        """Whether rows are drawn at random where they are loaded: each worker has other random
        numbers. Seen without workers only."""

    def begin(self) -> None:
        """Change the loaders of this process."""
        original = DataLoader.__iter__

        @functools.wraps(original)
        def begins(loader: Any) -> Any:
            self._change(loader)
            return original(loader)

        DataLoader.__iter__ = begins
        if self._workers != 0:
            return
        fetch = _MapDatasetFetcher.fetch

        @functools.wraps(fetch)
        def fetches(fetcher: Any, indices: Any) -> Any:
            before = None if self.draws else _random_numbers()
            rows = fetch(fetcher, indices)
            if before is not None and before != _random_numbers():
                self.draws = True
            return rows

        _MapDatasetFetcher.fetch = fetches

    def _change(self, loader: Any) -> None:
        self.loaders += 1
        self.most = max(self.most, loader.num_workers)
        self.is_iterable |= isinstance(loader.dataset, IterableDataset)
        share = _share(loader.sampler)
        if share is not None and all(one["rows"] != share["rows"] for one in self.shares):
            self.shares.append(share)
        if self._workers is None:
            return
        # A loader forbids to set some of these after its beginning.
        vars(loader)["num_workers"] = self._workers
        vars(loader)["persistent_workers"] = False
        vars(loader)["prefetch_factor"] = PREFETCHED if self._workers else None
        if not self._workers:
            vars(loader)["timeout"] = 0


def _share(sampler: Any) -> Share | None:
    """Return how a sampler shares rows among ranks; None if it is none of torch's that does."""
    from torch.utils.data import DistributedSampler

    if type(sampler).__iter__ is not DistributedSampler.__iter__:
        return None
    return {
        "rows": len(sampler.dataset),
        "replicas": sampler.num_replicas,
        "rank": sampler.rank,
        "seed": sampler.seed,
        "epoch": sampler.epoch,
        "shuffle": bool(sampler.shuffle),
        "drop_last": bool(sampler.drop_last),
    }


def _random_numbers() -> tuple[Any, ...]:
    """Return the state of what a dataset may draw from."""
    numpy: Any = sys.modules["numpy"].random if "numpy" in sys.modules else None
    # Not the legacy form: it is that of one generator only.
    state = b"" if numpy is None else pickle.dumps(numpy.get_state(legacy=False))
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), state


def change_batches(change: Callable[[Any], Any]) -> None:
    """Pass each batch that a loader gives to the training through `change`."""
    fetch = _BaseDataLoaderIter.__next__

    @functools.wraps(fetch)
    def fetches(iterator: Any) -> Any:
        batch = fetch(iterator)
        return change(batch) if torch.is_grad_enabled() else batch

    _BaseDataLoaderIter.__next__ = fetches
