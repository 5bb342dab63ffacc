"""More padding."""

from __future__ import annotations

from canary.relations.padded import example_of, padded_row
from canary.relations.relation import CannotAsk, Look, Outcome, Relation
from canary.relations.trained_padding import trained_padding

RELATION = Relation(
    "padding",
    "neighbours",
    "more padding does not change the log-probabilities of a row, and is not trained on",
    "padding is attended to (no mask, or positions count it), or the loss does not mask it",
    "https://github.com/huggingface/trl/tree/main/tests/invariant",
)
COLUMNS = 7


def ask(look: Look) -> Outcome:
    """Look for trained padding, then add columns of it to a padded row, where its padding is."""
    trained = trained_padding(look, RELATION)
    if trained is not None:
        return trained
    call, side, row = padded_row(look)
    if look.pad_id is None:
        raise CannotAsk("the id of padding is not known")
    assert call.ids is not None
    width, (first, end) = call.ids.shape[1], look.spans(call)[row]
    shift = COLUMNS if side == "left" else 0
    before = example_of(look, call, look.scores(call), row, (first, end), width)
    wider = look.scores(call, **look.widened(call, row, COLUMNS, side))
    after = example_of(look, call, wider, 0, (first + shift, end + shift), width + COLUMNS)
    both = min(before.shape[1], after.shape[1])
    return look.compared(RELATION.id, call, before[:, -both:], after[:, -both:])
