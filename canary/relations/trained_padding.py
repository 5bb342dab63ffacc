"""Padding that the loss trains on, read from the gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from canary.relations.documents import LEAST
from canary.relations.relation import Call, Look, Outcome, Relation, broken

LEAST_COLUMNS = 2
"""Of a row that must be trained: a single one may stand for the end of the text."""
SURE_RUN = 3
"""Columns of a run that are padding, even if it does not follow EOS: a sampled text may end with
the token of padding."""


@dataclass(frozen=True)
class Padding:
    """The padding of one row."""

    row: int
    columns: tuple[int, ...]
    trained: tuple[int, ...]
    """Those of `columns` that the loss trains on."""


def trained_padding(look: Look, relation: Relation) -> Outcome | None:
    """Return that padding is trained on; None if it is not, or if that is not known."""
    pad = look.pad_id
    calls = [one for one in look.calls if one.ids is not None and one.scores_tokens]
    calls = [one for one in calls if one.strengths is not None and not one.is_encoder_decoder]
    if pad is None or not calls or not _is_shown(look, calls, pad):
        return None
    found = [one for call in calls for one in _rows(look, call, pad)]
    spoilt = [one for one in found if len(one.trained) >= LEAST_COLUMNS]
    if not spoilt:
        return None
    count, of = (sum(map(len, sizes)) for sizes in _sizes(spoilt, found))
    words = f"{count} of {of} padding tokens are trained on, in {len(spoilt)} of {len(found)} rows"
    first = spoilt[0]
    return broken(relation, words, f"row {first.row}, token {first.trained[0]}", (count, of))


def _sizes(
    spoilt: Sequence[Padding], found: Sequence[Padding]
) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    return [one.trained for one in spoilt], [one.columns for one in found]


def _is_shown(look: Look, calls: Sequence[Call], pad: int) -> bool:
    """Whether the rows show that the token is padding: masks cover it, or no text holds it."""
    masked = set[int]()
    inside = False
    for call in calls:
        ids, mask = call.ids, call.arguments.get("attention_mask")
        assert ids is not None
        if getattr(mask, "shape", None) == ids.shape:
            masked |= set(ids[mask == 0].tolist())
        for line, (first, end) in zip(ids.tolist(), look.spans(call), strict=True):
            inside = inside or pad in line[first : end - 1]
    return masked == {pad} or (not masked and not inside)


def _rows(look: Look, call: Call, pad: int) -> Iterator[Padding]:
    """Yield the rows that have padding and no token of it inside."""
    assert call.ids is not None
    pulls = _pulls(look, call, pad)
    for row, (line, (first, end)) in enumerate(
        zip(call.ids.tolist(), look.spans(call), strict=True)
    ):
        if pad in line[first : end - 1]:
            continue
        columns = _columns(line, first, end, pad, look.eos_ids)
        if columns:
            yield Padding(row, columns, tuple(at for at in columns if pulls(row, at, columns)))


def _pulls(look: Look, call: Call, pad: int) -> Callable[[int, int, Sequence[int]], bool]:
    """Return whether the loss trains on a column: towards padding from anywhere, or from padding
    towards anything, as a loss over whole distributions does."""
    strengths = look.strengths_by_place(call)
    strongest = max((one for row in strengths for one in row), default=0.0)
    known = call.weights is not None and call.labels is not None
    weights, labels = look.by_place(call) if known else ([], [])
    largest = max((abs(one) for row in weights for one in row if one), default=0.0)

    def pulls(row: int, at: int, columns: Sequence[int]) -> bool:
        if at - 1 in columns and strengths[row][at] > LEAST * strongest:
            return True
        towards = known and labels[row][at] == pad
        return towards and abs(weights[row][at] or 0.0) > LEAST * largest

    return pulls


def _columns(
    line: Sequence[int], first: int, end: int, pad: int, eos_ids: frozenset[int]
) -> tuple[int, ...]:
    """Return the columns of padding around an example, where they are sure to be no text."""
    left, right = first, end
    while left and line[left - 1] == pad:
        left -= 1
    while right < len(line) and line[right] == pad:
        right += 1
    before, after = [*range(left, first)], [*range(end, right)]
    if pad in eos_ids:
        # The text begins with one if that is BOS too, and ends with one unless a mask hides it.
        before = before[:-1]
        after = after if end > first and line[end - 1] == pad else after[1:]
    if len(after) < SURE_RUN and not (end > first and line[end - 1] in eos_ids):
        after = []
    return (*before, *after)
