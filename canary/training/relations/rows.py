"""The rows of a call: where each example begins and ends, and its inputs rearranged."""

from __future__ import annotations

import itertools
from collections.abc import Sequence, Set
from typing import Any

import torch
from torch import nn

from canary.relations.documents import Document
from canary.training.relations.calls import KeptCall


def pad_of(calls: Sequence[KeptCall]) -> int | None:
    """Return the id of padding that the calls or the embedding show, if they do."""
    masked: set[int] = set()
    for call in calls:
        if call.ids is not None and call.mask is not None and call.mask.shape == call.ids.shape:
            masked |= set(call.ids[call.mask == 0].tolist())
    if masked:
        return masked.pop() if len(masked) == 1 else None
    embeddings = (one for one in calls[0].module.modules() if isinstance(one, nn.Embedding))
    return next((one.padding_idx for one in embeddings if one.padding_idx is not None), None)


def spans(call: KeptCall, pad_id: int | None, eos_ids: Set[int]) -> list[tuple[int, int]]:
    """Return (first, end) of each row's example: what the mask leaves, without runs of padding at
    both ends. A mask of ones may cover padding. If padding is EOS, one at the end is real."""
    ids = call.ids
    assert ids is not None
    real = torch.ones_like(ids, dtype=torch.bool)
    if call.mask is not None and call.mask.shape == ids.shape:
        real = call.mask.bool()
    found = []
    for row, line in zip(real, ids.tolist(), strict=True):
        places = row.nonzero().flatten().tolist()
        first, end = (places[0], places[-1] + 1) if places else (0, 0)
        while first < end and line[first] == pad_id:
            first += 1
        least = first + (1 if pad_id in eos_ids else 0)
        while end > least and line[end - 1] == pad_id:
            end -= 1
        if pad_id in eos_ids and places and end < places[-1] + 1:
            end += 1
        found.append((first, end))
    return found


def counted(call: KeptCall, scores: torch.Tensor, found: Sequence[tuple[int, int]]) -> torch.Tensor:
    """Return True where a score is of a real token that follows a real one; `found`: its spans."""
    assert call.ids is not None
    counts = torch.zeros_like(scores, dtype=torch.bool)
    left_out = call.ids.shape[1] - 1 - scores.shape[1]
    for row, (first, end) in enumerate(found):
        counts[row, max(0, first - left_out) : max(0, end - 1 - left_out)] = True
    return counts


def example(scores: torch.Tensor, row: int, span: tuple[int, int], width: int) -> torch.Tensor:
    """Return the scores of the example between two tokens of a row of `width` tokens."""
    left_out = width - 1 - scores.shape[1]
    first, end = span
    return scores[row : row + 1, max(0, first - left_out) : max(0, end - 1 - left_out)]


def by_row(call: KeptCall) -> dict[str, torch.Tensor]:
    """Return the arguments that have one entry per row."""
    rows = call.shape[0]
    return {
        name: value
        for name, value in call.arguments.items()
        if torch.is_tensor(value) and value.dim() and len(value) == rows and name != "labels"
    }


def by_token(call: KeptCall) -> dict[str, torch.Tensor]:
    """Return the arguments that have one entry per row and token."""
    ids = call.ids
    assert ids is not None
    return {name: value for name, value in by_row(call).items() if value.shape == ids.shape}


def picked(call: KeptCall, rows: Sequence[int]) -> dict[str, Any]:
    """Return the arguments of some rows, in this order."""
    return {name: value[list(rows)] for name, value in by_row(call).items()}


def cut(call: KeptCall, row: int, first: int, end: int) -> dict[str, Any]:
    """Return the arguments of one row between two tokens. A model that was asked for its last
    tokens only is asked for at most those after the row's first."""
    found: dict[str, Any] = picked(call, [row])
    for name, value in by_token(call).items():
        found[name] = value[row : row + 1, first:end]
    asked_for = call.shape[1] - (call.says == "log_probs")
    for name, value in call.arguments.items():
        if type(value) is int and value == asked_for:
            found[name] = max(1, min(value, end - first - 1))
    return found


def widened(call: KeptCall, row: int, columns: int, side: str, pad_id: int) -> dict[str, Any]:
    """Return the arguments of one row with more columns of padding on a side.

    Ids get padding, positions repeat their last or first value, masks and others get 0.
    """
    found: dict[str, Any] = picked(call, [row])
    for name, value in by_token(call).items():
        one = value[row : row + 1]
        more = one.new_zeros((1, columns))
        if name == "input_ids":
            more = one.new_full((1, columns), pad_id)
        elif "pad" in name.lower():  # A mask of padding: 1 where a token is none.
            more = one.new_ones((1, columns))
        elif name == "position_ids":
            more = (one[:, -1:] if side == "right" else one[:, :1]).expand(1, columns)
        found[name] = torch.cat([one, more] if side == "right" else [more, one], dim=1)
    return found


def texts(call: KeptCall, found: Sequence[tuple[int, int]]) -> list[Document]:
    """Return the rows of a call without padding, with no weights; `found`: their spans."""
    assert call.ids is not None
    return [
        Document(row, first, tuple(line[first:end]), (None,) * (end - first))
        for row, (line, (first, end)) in enumerate(zip(call.ids.tolist(), found, strict=True))
    ]


def by_place(call: KeptCall) -> tuple[list[list[float | None]], list[list[int]]]:
    """Return how much each token of a call that has weights was raised, and its label.

    The weight is None where it is not known, and the label is the token itself without a weight.
    """
    assert call.ids is not None
    assert call.weights is not None
    assert call.labels is not None
    width, kept = call.ids.shape[1], call.weights.shape[1]
    # The logits at one position are of the next token. Log-probabilities already are of their own.
    shift = width - kept + (0 if call.says == "log_probs" else 1)
    all_weights, all_labels = [], call.ids.tolist()
    for row, labels in enumerate(all_labels):
        weights: list[float | None] = [0.0] * width
        lines = (call.weights[row].tolist(), call.labels[row].tolist())
        certain = [False] * kept if call.certain is None else call.certain[row].tolist()
        for place, (weight, label) in enumerate(zip(*lines, strict=True), start=shift):
            if 0 <= place < width:
                weights[place] = None if certain[place - shift] and not weight else weight
                labels[place] = label
        all_weights.append(weights)
    return all_weights, all_labels


def strengths_by_place(call: KeptCall) -> list[list[float]]:
    """Return how strongly the loss pulls at each token of a call, seen from the position before."""
    assert call.ids is not None
    assert call.strengths is not None
    width, kept = call.ids.shape[1], call.strengths.shape[1]
    shift = width - kept + (0 if call.says == "log_probs" else 1)
    lines = [[0.0] * shift + line for line in call.strengths.tolist()]
    return [(line + [0.0] * width)[:width] for line in lines]


def documents(call: KeptCall, found: Sequence[tuple[int, int]]) -> list[Document]:
    """Return the texts of a call that has weights; `found`: the spans of its rows."""
    assert call.ids is not None
    width = call.ids.shape[1]
    all_weights, all_labels = by_place(call)
    made = []
    for row, (first, end) in enumerate(found):
        ids = call.ids[row].tolist()
        weights, labels = all_weights[row], all_labels[row]
        for begins, ends in _parts(call, row, first, end):
            off = sum(
                labels[place] != ids[place] for place in range(begins, ends) if weights[place]
            )
            own = (None, *weights[begins + 1 : ends])
            made.append(
                Document(
                    row,
                    begins,
                    tuple(ids[begins:ends]),
                    own,
                    off,
                    is_widest=(begins, ends) == (0, width),
                    is_end_known=ends < end or _ends_with_mask(call, row, ends),
                )
            )
    return made


def _ends_with_mask(call: KeptCall, row: int, end: int) -> bool:
    """Whether an attention mask says that a document ends here, or a row without padding does."""
    mask = call.mask
    if mask is None or call.ids is None or mask.shape != call.ids.shape:
        return False
    return bool(mask[row, end - 1]) and (end == mask.shape[1] or not bool(mask[row, end]))


def _parts(call: KeptCall, row: int, first: int, end: int) -> list[tuple[int, int]]:
    """Return the documents of a row: positions begin again at each."""
    positions = by_token(call).get("position_ids")
    if positions is None:
        return [(first, end)]
    line = positions[row, first:end]
    if bool((line == line[:1]).all()):
        return [(first, end)]  # They tell nothing.
    starts = [first + one + 1 for one in (line[1:] <= line[:-1]).nonzero().flatten().tolist()]
    edges = [first, *starts, end]
    return [(one, other) for one, other in itertools.pairwise(edges) if other > one]
