"""What the questions see of the first updates of a training: its rows, and who scored them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import torch
from torch import nn

from canary.record.exact import Asked
from canary.training.asking.calls import LEAST_VOCABULARY, SURE, Call
from canary.training.asking.leftover import Buffer
from canary.training.asking.updates import Scored, Update

LONGEST = 300
"""Characters of an answer."""
LEAST = 1e-3
"""Of the largest weight; below, a token is not trained on."""
Span = tuple[int, int]


class CannotAsk(Exception):
    """A question says nothing about this training; the text says why. If that begins with `only
    for`, the question is for other trainings."""


@dataclass(frozen=True)
class Document:
    """One text of a micro-batch, without padding."""

    row: int
    first: int
    """Its first column in the row."""
    ids: tuple[int, ...]
    weights: tuple[float | None, ...]
    off: int
    """Trained tokens whose label is another token than the next one."""

    @property
    def end(self) -> int:
        """The column after it."""
        return self.first + len(self.ids)

    @property
    def trained(self) -> tuple[bool | None, ...]:
        """Whether each token is trained on; None if that is not known."""
        least = LEAST * max((abs(one) for one in self.weights if one is not None), default=0.0)
        return tuple(None if one is None else abs(one) > least for one in self.weights)

    @property
    def raised(self) -> float:
        """The sum of all weights: positive if the text is raised, negative if it is lowered."""
        return sum(one for one in self.weights if one is not None)

    @property
    def is_next_token(self) -> bool:
        """Whether the labels are the next tokens."""
        return self.off <= (1 - SURE) * sum(map(bool, self.trained))

    def place(self, token: int) -> str:
        """Say where one of its tokens is."""
        return f"row {self.row}, token {self.first + token}"


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
    updates: list[Update] = field(default_factory=list)
    references: list[Scored] = field(default_factory=list)
    """Who scored trained rows without gradients, and was not the policy as it is."""
    tolerances: dict[int, float] = field(default_factory=dict)
    """Of calls, by their ids; see `rounding_of`."""
    buffer: Buffer = field(default_factory=Buffer)
    losses: Sequence[float | None] = ()
    """Of the look's steps."""
    is_causal: bool = False
    """Whether a second call showed it, of a model whose labels are not the next tokens."""

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
        assert call.weights is not None
        assert call.labels is not None
        weights, ids, made = call.weights, call.ids.cpu(), []
        hidden = torch.zeros_like(ids) if call.certain is None else call.certain
        hidden, off = hidden.bool() & (weights == 0), (call.labels != ids) & (weights != 0)
        for row, documents in enumerate(self.parts(call)):
            for begins, ends in documents:
                inside, later = (row, slice(begins, ends)), (row, slice(begins + 1, ends))
                pairs = zip(weights[later].tolist(), hidden[later].tolist(), strict=True)
                made.append(
                    Document(
                        row,
                        begins,
                        tuple(ids[inside].tolist()),
                        (None, *(None if is_hidden else one for one, is_hidden in pairs)),
                        int(off[inside].sum()),
                    )
                )
        return made

    def parts(self, call: Call) -> list[list[Span]]:
        """Return the documents of each row."""
        return [parts(call, row, *span) for row, span in enumerate(self.spans(call))]

    def is_packed(self, call: Call) -> bool:
        """Whether a call holds several documents in one row."""
        return any(len(one) > 1 for one in self.parts(call))

    @property
    def known(self) -> list[Call]:
        """The calls that show what each token was trained towards.

        Raises:
            CannotAsk: there are none.
        """
        found = [one for one in self.calls if one.weights is not None and one.is_language_model]
        if not found:
            why = "the gradient does not show what each token is trained towards"
            few = [n for one in self.calls for n in one.shape[2:] if n < LEAST_VOCABULARY]
            raise CannotAsk(f"with {few[0]} outputs per token, {why}" if few else why)
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
        named = first if isinstance(first, dict) else ()
        return frozenset(getattr(rows, "column_names", None) or named)

    @property
    def samples(self) -> bool:
        """Whether completions are sampled, as far as the trainer's arguments say."""
        return any(self.setting(name) is not None for name in ("num_generations", "ppo_epochs"))

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


# Rows.


def masked_ids(calls: Sequence[Call]) -> set[int]:
    """Return the ids that attention masks cover."""
    masks = ((call.ids, call.mask) for call in calls)
    return {int(x) for ids, mask in masks if mask is not None for x in ids[mask == 0].unique()}


def _pad_of(calls: Sequence[Call]) -> int | None:
    """Return the id of padding that the calls or the embedding show, if they do."""
    masked = masked_ids(calls)
    if masked:
        return masked.pop() if len(masked) == 1 else None
    embeddings = (one for one in calls[0].module.modules() if isinstance(one, nn.Embedding))
    return next((one.padding_idx for one in embeddings if one.padding_idx is not None), None)


def parts(call: Call, row: int, first: int, end: int) -> list[Span]:
    """Return the documents of a row: positions begin again at each."""
    positions = call.by_token("position_ids")
    if positions is None or end <= first:
        return [(first, end)] if end > first else []
    line = positions[row, first:end]
    if bool((line == line[:1]).all()):
        return [(first, end)]  # They tell nothing.
    starts = [first + one + 1 for one in (line[1:] <= line[:-1]).nonzero().flatten().tolist()]
    return [*itertools.pairwise([first, *starts, end])]


# Tokenizers.


def looked(trained: Any, calls: list[Call], tokenizer: Any) -> Look:
    """Return the look of a first update."""
    trainer = trained if hasattr(trained, "compute_loss") else None
    pad, ends = _special_ids(tokenizer, calls[0].module)
    pad = _pad_of(calls) if pad is None else pad
    return Look(calls[0].module, calls, trainer, tokenizer, pad, ends)


def _special_ids(tokenizer: Any, model: Any) -> tuple[int | None, frozenset[int]]:
    """Return the ids of padding and of ends that a tokenizer, or else a model's configs, say."""
    known = (tokenizer, getattr(model, "config", None), getattr(model, "generation_config", None))
    pads = (pad for one in known for pad in _numbers(getattr(one, "pad_token_id", None)))
    ends = frozenset(end for one in known for end in _numbers(getattr(one, "eos_token_id", None)))
    return next(pads, None), ends


def _numbers(said: Any) -> list[int]:
    """Return the ids of one or several, as numbers of Python, numpy or torch."""
    said = said.tolist() if hasattr(said, "tolist") else said
    several = said if isinstance(said, list | tuple | set | frozenset) else [said]
    return [int(one) for one in several if isinstance(one, Integral)]
