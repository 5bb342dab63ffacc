"""What the questions see of the first updates of a training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from canary.record.exact import Asked
from canary.training.asking.calls import Call
from canary.training.asking.gradients import Accumulated
from canary.training.asking.leftover import Buffer
from canary.training.asking.rows import Document, Span, lines, parts
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
        """Return (first, end) of each row's example: what the mask leaves, without runs of padding
        at both ends. A mask of ones may cover padding. If padding is EOS, one at the end is real.
        """
        mask = torch.ones_like(call.ids) if call.mask is None else call.mask
        found, keeps = [], int(self.pad_id in self.eos_ids)
        for row, line in zip(mask.bool(), call.ids.tolist(), strict=True):
            places = row.nonzero().flatten().tolist()
            first, last = (places[0], places[-1] + 1) if places else (0, 0)
            end = last
            while first < end and line[first] == self.pad_id:
                first += 1
            while end > first + keeps and line[end - 1] == self.pad_id:
                end -= 1
            found.append((first, min(last, end + keeps)))
        return found

    def documents(self, call: Call) -> list[Document]:
        """Return the texts of a call that shows its weights."""
        made = []
        for line, (first, end) in zip(lines(call), self.spans(call), strict=True):
            masked = [1] * len(line.ids) if call.mask is None else call.mask[line.row].tolist()
            for begins, ends in parts(call, line.row, first, end):
                inside = range(begins, ends)
                off = sum(line.labels[at] != line.ids[at] for at in inside if line.weights[at])
                known = call.mask is not None and masked[ends - 1] and not any(masked[ends:][:1])
                weights, ids = (None, *line.weights[begins + 1 : ends]), line.ids[begins:ends]
                is_known = ends < end or bool(known)
                made.append(Document(line.row, begins, tuple(ids), weights, off, is_known))
        return made

    def is_packed(self, call: Call) -> bool:
        """Whether a call holds several documents in one row."""
        spans = enumerate(self.spans(call))
        return any(len(parts(call, row, *span)) > 1 for row, span in spans)

    @property
    def known(self) -> list[Call]:
        """The calls that show what each token was trained towards.

        Raises:
            CannotAsk: there are none.
        """
        found = [one for one in self.calls if one.weights is not None and one.is_language_model]
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


def not_asked(why: str) -> Asked:
    """Return that a question could not be asked."""
    return {"status": "not asked", "words": why[:LONGEST], "place": ""}
