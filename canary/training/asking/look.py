"""What the questions see of the first updates of a training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from canary.record.exact import Asked
from canary.training.asking import rows
from canary.training.asking.calls import Call
from canary.training.asking.gradients import Accumulated
from canary.training.asking.leftover import Buffer
from canary.training.asking.rows import Document, Span
from canary.training.asking.updates import Scored, Update

LONGEST = 300
"""Characters of an answer."""


class CannotAsk(Exception):
    """A question says nothing about this training; the text says why. If that begins with `only
    for`, the question is for other trainings."""


@dataclass
class Look:
    """The first update of a policy, and a few numbers of those that follow."""

    model: nn.Module
    calls: list[Call]
    """Of the first update, whose loss trained the policy."""
    trainer: Any
    """A trainer; None for a plain loop."""
    tokenizer: Any
    pad_id: int | None
    eos_ids: frozenset[int]
    gradients: Accumulated
    updates: list[Update] = field(default_factory=list)
    references: dict[Any, tuple[nn.Module, Scored]] = field(default_factory=dict)
    """Who scored trained rows without gradients, and is not the policy as it is."""
    start: torch.Tensor | None = None
    """What the policy said of `call` before the first update, if it was called again."""
    buffer: Buffer = field(default_factory=Buffer)
    losses: Sequence[float | None] = ()
    """Of the look's steps."""

    def spans(self, call: Call) -> list[Span]:
        """Return (first, end) of each row's example, without its padding."""
        return rows.spans(call, self.pad_id, self.eos_ids)

    def documents(self, call: Call) -> list[Document]:
        """Return the texts of a call that shows its weights."""
        return rows.documents(call, self.spans(call))

    def is_packed(self, call: Call) -> bool:
        """Whether a call holds several documents in one row."""
        spans = enumerate(self.spans(call))
        return any(len(rows.parts(call, row, *span)) > 1 for row, span in spans)

    @property
    def known(self) -> list[Call]:
        """The calls that show what each token was trained towards.

        Raises:
            CannotAsk: there are none.
        """
        found = [one for one in self.calls if one.is_known]
        if not found:
            raise CannotAsk("the gradient does not show what each token is trained towards")
        return found

    @property
    def call(self) -> Call:
        """The first call with several rows, else the first one."""
        return next((one for one in self.calls if one.shape[0] > 1), self.calls[0])

    @property
    def is_preference(self) -> bool:
        """Whether the first update raises some rows and lowers others."""
        return len({one.mean > 0 for one in self.updates[0].rows if one.mean}) > 1

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the trainer's dataset, as far as it says them."""
        rows: Any = getattr(self.trainer, "train_dataset", None)
        first = rows[0] if isinstance(rows, list) and rows else None
        return frozenset(getattr(rows, "column_names", None) or first or ())

    @property
    def samples(self) -> bool:
        """Whether completions are sampled, as far as the trainer's arguments say."""
        return self.setting("num_generations") is not None

    def setting(self, name: str) -> Any:
        """Return an argument of a transformers trainer; None without one."""
        return getattr(getattr(self.trainer, "args", None), name, None)


def holds(words: str) -> Asked:
    """Return that a question's answer is as it must be."""
    return {"status": "holds", "words": words[:LONGEST], "place": ""}


def broken(words: str, place: str = "") -> Asked:
    """Return that it is not."""
    return {"status": "broken", "words": words[:LONGEST], "place": place[:LONGEST]}


def note(words: str, place: str, doubt: str) -> Asked:
    """Return that it looks wrong, and why it may be a choice."""
    return broken(words, place) | {"status": "note", "doubt": doubt[:LONGEST]}


def not_asked(why: str) -> Asked:
    """Return that a question could not be asked."""
    return {"status": "not asked", "words": why[:LONGEST], "place": ""}
