"""Which rows of a trainer's dataset its loader draws.

A row that trains has lost the columns that the model does not take. The dataset still has them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from torch.utils.data import dataloader

MOST_ROWS = 512


class DrawnRows:
    """Notes the places of the first rows that loaders draw, until `end`."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._places: dict[int, None] = {}
        self._kind: Any = dataloader._BaseDataLoaderIter
        self._original = self._kind._next_index
        self._kind._next_index = self._noting()

    def _noting(self) -> Any:
        original = self._original

        @functools.wraps(original)
        def next_index(iterator: Any) -> Any:
            found = original(iterator)
            if len(self._places) < MOST_ROWS and self._is_ours(iterator):
                for place in found if isinstance(found, list | tuple) else [found]:
                    if isinstance(place, int):
                        self._places[place] = None
            return found

        return next_index

    def _is_ours(self, iterator: Any) -> bool:
        """Whether a loader has as many rows as the dataset."""
        ours = getattr(self._trainer, "train_dataset", None)
        try:
            return ours is not None and len(iterator._dataset) == len(ours)
        except (AttributeError, TypeError):
            return False

    def examples(self) -> list[Mapping[str, Any]]:
        """Return the drawn rows with all their columns."""
        rows: Any = getattr(self._trainer, "train_dataset", None)
        found = [rows[place] for place in [*self._places][:MOST_ROWS]] if self._places else []
        return [one for one in found if isinstance(one, Mapping)]

    def end(self) -> None:
        """Stop noting."""
        if self._kind is not None:
            self._kind._next_index = self._original
            self._kind = None
