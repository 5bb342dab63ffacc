"""An example without its padding."""

from __future__ import annotations

from canary.relations.padded import example_of, padded_row
from canary.relations.relation import Look, Outcome, Relation

RELATION = Relation(
    "padding_side",
    "neighbours",
    "a row has the same log-probabilities without its padding",
    "positions count the padding, or it is attended to",
    "https://github.com/huggingface/trl/tree/main/tests/invariant",
)


def ask(look: Look) -> Outcome:
    """Leave out the padding of a row."""
    call, side, row = padded_row(look)
    assert call.ids is not None
    first, end = look.spans(call)[row]
    before = example_of(look, call, look.scores(call), row, (first, end), call.ids.shape[1])
    alone = look.scores(call, **look.cut(call, row, first, end))
    after = example_of(look, call, alone, 0, (0, end - first), end - first)
    both = min(before.shape[1], after.shape[1])
    made = look.compared(RELATION.id, call, before[:, -both:], after[:, -both:])
    if made["status"] == "broken":
        made["message"] = f"without its {side} padding: {made['message']}"
    return made
