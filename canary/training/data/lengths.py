"""Sort the rows of each optimizer step by length, so that micro-batches have less padding.

A step still trains on the same rows, in other micro-batches. This changes only rounding if the loss
is a mean over rows, or over all tokens of the step.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from torch.utils.data import BatchSampler, Sampler

from canary.errors import ConfigError


class Bucketed(Sampler[int]):
    """Keeps another sampler's order, but sorts every `together` rows from long to short."""

    def __init__(self, order: Any, lengths: Sequence[int], together: int) -> None:
        self.order = order
        self._lengths = lengths
        self._together = together

    def __iter__(self) -> Iterator[int]:
        order = iter(self.order)
        while rows := list(islice(order, self._together)):
            yield from sorted(rows, key=self._lengths.__getitem__, reverse=True)

    def __len__(self) -> int:
        return len(self.order)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the inner sampler."""
        if hasattr(self.order, "set_epoch"):
            self.order.set_epoch(epoch)


def bucket_rows(trainer: Any) -> None:
    """Make this trainer instance sort the rows of each optimizer step by length.

    Raises ConfigError if rows have no token ids, or the loader does not draw rows one by one.
    """
    original = trainer.get_train_dataloader
    lengths = row_lengths(trainer.train_dataset)
    args = trainer.args
    together = args.train_batch_size * args.gradient_accumulation_steps * args.world_size

    @functools.wraps(original)
    def sorted_rows() -> Any:
        # After accelerate has put its sampler in, so that steps get the same rows as without this.
        loader = original()
        batches = _innermost(loader.batch_sampler)
        batches.sampler = Bucketed(batches.sampler, lengths, together)
        return loader

    trainer.get_train_dataloader = sorted_rows


def _innermost(batches: Any) -> BatchSampler:
    """Return the sampler of whole batches, below those that split batches among ranks."""
    while hasattr(batches, "batch_sampler"):
        batches = batches.batch_sampler
    if not hasattr(batches, "sampler"):
        raise ConfigError(
            "speed.lengths bucketed needs a data loader that draws rows one by one",
            "choose longest",
            key="speed.lengths",
        )
    return batches


def row_lengths(rows: Any) -> list[int]:
    """Return the tokens of each row: its prompt plus its longest answer.

    Raises ConfigError if the rows are not tokenized or are a stream.
    """
    names = [name for name in getattr(rows, "column_names", None) or () if "ids" in name]
    if not names or not hasattr(rows, "__len__"):
        raise ConfigError(
            "speed.lengths bucketed needs tokenized rows, not a stream",
            "choose longest",
            key="speed.lengths",
        )
    return [row_length({name: row[name] for name in names}) for row in rows.select_columns(names)]


def row_length(row: Mapping[str, Sequence[int]]) -> int:
    """Return the tokens of one row; its columns are ids of the prompt and of one or two answers."""
    prompts = [len(ids) for name, ids in row.items() if name.startswith("prompt")]
    answers = [len(ids) for name, ids in row.items() if not name.startswith("prompt")]
    return sum(prompts) + max(answers, default=0)
