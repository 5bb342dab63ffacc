"""Text that the attention mask hides as if it were padding, and that the loss trains on."""

from __future__ import annotations

from collections.abc import Iterator

from canary.relations.documents import LEAST
from canary.relations.relation import Call, Look, Outcome, Relation, broken

LEAST_TOKENS = 2
"""Of a row: a single one may be an unknown mark of its end."""


def hidden_text(look: Look, relation: Relation) -> Outcome | None:
    """Return that trained tokens are masked at an end of their rows; None if none are."""
    found = [one for call in look.calls if _tells(call) for one in _rows(look, call)]
    spoilt = [(row, columns) for row, columns in found if len(columns) >= LEAST_TOKENS]
    if not spoilt:
        return None
    count = sum(len(columns) for _, columns in spoilt)
    words = (
        f"the attention mask hides {count} trained tokens that are no padding, in {len(spoilt)} of "
        f"{len(found)} rows"
    )
    row, columns = spoilt[0]
    return broken(relation, words, f"row {row}, token {columns[0]}", (count, 0))


def _tells(call: Call) -> bool:
    """Whether a call shows its mask and what it was trained towards."""
    mask = call.arguments.get("attention_mask")
    known = call.weights is not None and call.labels is not None
    same = call.ids is not None and getattr(mask, "shape", None) == call.ids.shape
    return known and same and not call.is_encoder_decoder


def _rows(look: Look, call: Call) -> Iterator[tuple[int, list[int]]]:
    """Yield each row with the masked columns at its ends that hold a trained token of text."""
    assert call.ids is not None
    weights, labels = look.by_place(call)
    largest = max((abs(one) for row in weights for one in row if one), default=0.0)
    no_text = {look.pad_id, *look.eos_ids}
    lines = (call.ids.tolist(), call.arguments["attention_mask"].tolist())
    for row, (line, mask) in enumerate(zip(*lines, strict=True)):
        real = [at for at, one in enumerate(mask) if one]
        if not real:
            continue
        ends = (*range(real[0]), *range(real[-1] + 1, len(line)))
        yield (
            row,
            [
                at
                for at in ends
                if line[at] not in no_text
                and labels[row][at] == line[at]
                and abs(weights[row][at] or 0.0) > LEAST * largest
            ],
        )
