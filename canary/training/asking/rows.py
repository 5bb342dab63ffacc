"""The rows of a call: where each text begins and ends, and its inputs rearranged."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from canary.training.asking.calls import SURE, Call

LEAST = 1e-3
"""Of the largest weight; below, a token is not trained on."""
Span = tuple[int, int]


@dataclass(frozen=True)
class Line:
    """One row of a call by token: what it is, and what its place was trained towards."""

    row: int
    ids: list[int]
    weights: list[float | None]
    """How much each token was raised; 0 if it was not trained on, None if that is not known."""
    labels: list[int]
    strengths: list[float]


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
    is_end_known: bool
    """Whether an attention mask, or the next document, says where it ends."""

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


def masked_ids(calls: Sequence[Call]) -> set[int]:
    """Return the ids that attention masks cover."""
    masks = ((call.ids, call.mask) for call in calls)
    return {int(x) for ids, mask in masks if mask is not None for x in ids[mask == 0].unique()}


def pad_of(calls: Sequence[Call]) -> int | None:
    """Return the id of padding that the calls or the embedding show, if they do."""
    masked = masked_ids(calls)
    if masked:
        return masked.pop() if len(masked) == 1 else None
    embeddings = (one for one in calls[0].module.modules() if isinstance(one, nn.Embedding))
    return next((one.padding_idx for one in embeddings if one.padding_idx is not None), None)


def scores_of(span: Span, width: int, scores: torch.Tensor) -> slice:
    """Return where scores of a row of `width` tokens are of an example in it."""
    left_out = width - 1 - scores.shape[1]
    return slice(max(0, span[0] - left_out), max(0, span[1] - 1 - left_out))


def changed_row(call: Call, row: int, span: Span | None, more: int = 0, pad: int = 0) -> Any:
    """Return the arguments of one row: the part of it within a span; or all of it, with `more`
    columns of padding on the right, or on the left if it is negative.

    Ids get padding, positions repeat their last or first value, masks and others get 0.
    """
    found: dict[str, Any] = {}
    for name, value in call.arguments.items():
        if torch.is_tensor(value) and value.dim() and len(value) == call.shape[0]:
            one = value[row : row + 1]
            if call.by_token(name) is not None and span is not None:
                one = one[:, span[0] : span[1]]
            elif call.by_token(name) is not None:
                fill = pad if name == "input_ids" else int("pad" in name.lower())
                columns = one.new_full((1, abs(more)), fill)
                if name == "position_ids":
                    columns = (one[:, -1:] if more > 0 else one[:, :1]).expand(1, abs(more))
                one = torch.cat([one, columns] if more > 0 else [columns, one], dim=1)
            found |= {} if name == "labels" else {name: one}
        elif span is not None and type(value) is int and value == call.shape[1] - call.is_fused:
            # A model that is asked for its last tokens only.
            found[name] = max(1, min(value, span[1] - span[0] - 1))
    return found


def lines(call: Call) -> list[Line]:
    """Return the rows of a call that has weights."""
    assert call.weights is not None
    assert call.labels is not None
    assert call.strengths is not None
    width, made = call.ids.shape[1], []
    # The logits at one position are of the next token. Log-probabilities already are of their own.
    shift = width - call.weights.shape[1] + 1 - call.is_fused
    certain = torch.zeros_like(call.weights) if call.certain is None else call.certain
    columns = [x.tolist() for x in (call.weights, call.labels, call.strengths, certain)]
    for row, (ids, *line) in enumerate(zip(call.ids.tolist(), *columns, strict=True)):
        one = Line(row, ids, [0.0] * width, [*ids], [0.0] * width)
        for place, (weight, label, strength, sure) in enumerate(zip(*line, strict=True), shift):
            if 0 <= place < width:
                one.weights[place] = None if sure and not weight else weight
                one.strengths[place] = strength
                one.labels[place] = label if weight else ids[place]
        made.append(one)
    return made


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
