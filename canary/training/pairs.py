"""What one run of a pair does in another way: it loads with other workers, saves, or resumes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from canary.training.collectors.aside import Wrapping
from canary.training.facts.loaders import State, generators_of, state_of

if TYPE_CHECKING:
    from canary.protocol.job import Variation

PREFETCHED = 2
"""Batches that each worker loads ahead: the default of torch."""
NO_LOADER = "no DataLoader of torch was seen"
NO_TRAINER = "only a transformers Trainer can save and resume here"
DRAWN = "rows are drawn at random where they are loaded: each worker has random numbers of its own"


class Pair:
    """What this process does in another way. A process has one."""

    def __init__(self) -> None:
        self._variation: Variation = {}
        self._loaders = 0
        """Loaders that began."""
        self._is_iterable = self._draws = self._is_trainer = False

    def begin(self, variation: Variation | None) -> None:
        """Change the loaders of this process, whatever its loop."""
        self._variation = variation or {}
        if "workers" not in self._variation:
            return
        Wrapping().wrap(DataLoader, "__iter__", self._around_iter)
        if not self._variation["workers"]:
            # In a worker, another process sees it.
            Wrapping().wrap(_MapDatasetFetcher, "fetch", self._around_fetch)

    def _around_fetch(self, original: Any, fetcher: Any, indices: Any) -> Any:
        before = None if self._draws else _random_numbers()
        rows = original(fetcher, indices)
        self._draws |= before is not None and before != _random_numbers()
        return rows

    def _around_iter(self, original: Any, loader: Any) -> Any:
        workers = self._variation["workers"]
        self._loaders += 1
        self._is_iterable |= isinstance(loader.dataset, IterableDataset)
        # A loader forbids to set some of these after its beginning.
        vars(loader)["num_workers"] = workers
        vars(loader)["persistent_workers"] = False
        vars(loader)["prefetch_factor"] = PREFETCHED if workers else None
        if not workers:
            vars(loader)["timeout"] = 0
        return original(loader)

    def vary(self, trainer: Any, folder: Path) -> None:
        """Let a transformers Trainer save a checkpoint into a folder, if it is to."""
        self._is_trainer = True
        step = self._variation.get("save_at")
        if step is None:
            return
        from transformers.trainer_utils import SaveStrategy

        trainer.args.output_dir = str(folder)
        trainer.args.save_strategy = SaveStrategy.STEPS
        trainer.args.save_steps = step
        trainer.args.save_total_limit = None
        trainer.args.save_only_model = False

    @property
    def resume(self) -> str | None:
        """The checkpoint that a transformers Trainer begins at."""
        return self._variation.get("resume")

    def why_not(self) -> str | None:
        """Return why the training was not done in another way; None if it was."""
        if {*self._variation} & {"save_at", "resume"} and not self._is_trainer:
            return NO_TRAINER
        if "workers" in self._variation and not self._loaders:
            return NO_LOADER
        return DRAWN if self._draws and not self._is_iterable else None


def _random_numbers() -> dict[str, State | None]:
    """Return the states of what a dataset may draw from."""
    return {name: state_of(one) for name, one in generators_of({}).items()}


PAIR = Pair()
"""The one of this process."""
