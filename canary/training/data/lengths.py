"""Rows of one optimizer step sorted by their length, so that micro-batches have less padding.

A step trains on the same rows as without; which of them share a micro-batch is another matter, and
one of rounding where the loss is a mean over rows, or over all tokens of the step.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from torch.utils.data import BatchSampler, Sampler

from canary.errors import ConfigError


class Bucketed(Sampler[int]):
    """The order of another sampler, but each `together` rows of it from long to short."""

    def __init__(self, order: Any, lengths: Sequence[int], together: int) -> None:
        self.order = order
        self._lengths = lengths
        self._together = together

    def __iter__(self) -> Iterator[int]:
        left = iter(self.order)
        while rows := list(islice(left, self._together)):
            yield from sorted(rows, key=self._lengths.__getitem__, reverse=True)

    def __len__(self) -> int:
        return len(self.order)

    def set_epoch(self, epoch: int) -> None:
        """As the sampler inside does it."""
        if hasattr(self.order, "set_epoch"):
            self.order.set_epoch(epoch)


def bucket_rows(trainer: Any) -> None:
    """Has a trainer, this instance, sort the rows of each optimizer step by length.

    Raises:
        ConfigError: its rows have no token ids, or its loader chooses batches in a way of its own.
    """
    original = trainer.get_train_dataloader
    lengths = row_lengths(trainer.train_dataset)
    args = trainer.args
    together = args.train_batch_size * args.gradient_accumulation_steps * args.world_size

    @functools.wraps(original)
    def sorted_rows() -> Any:
        # After accelerate has put its own sampler in: the order of rows is that of no switch.
        loader = original()
        batches = _innermost(loader.batch_sampler)
        batches.sampler = Bucketed(batches.sampler, lengths, together)
        return loader

    trainer.get_train_dataloader = sorted_rows


def _innermost(batches: Any) -> BatchSampler:
    """The sampler of whole batches, below those that give each rank its own."""
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
    """Tokens of each row of tokenized data: of a prompt and the longer of its answers.

    Raises:
        ConfigError: the rows are not tokenized, or come as a stream.
    """
    names = [name for name in getattr(rows, "column_names", None) or () if "ids" in name]
    if not names or not hasattr(rows, "__len__"):
        raise ConfigError(
            "speed.lengths bucketed needs rows of token ids, all there from the start",
            "choose longest",
            key="speed.lengths",
        )
    return [row_length({name: row[name] for name in names}) for row in rows.select_columns(names)]


def row_length(row: Mapping[str, Sequence[int]]) -> int:
    """Of one row: columns of the prompt's ids, and of the ids of one answer or two."""
    prompts = [len(ids) for name, ids in row.items() if name.startswith("prompt")]
    answers = [len(ids) for name, ids in row.items() if not name.startswith("prompt")]
    return sum(prompts) + max(answers, default=0)
