"""More padding: of one call of the model, and of all batches of the training."""

from __future__ import annotations

from collections.abc import Sequence

from canary.relations.hidden_text import hidden_text
from canary.relations.padded import example_of, padded_row
from canary.relations.relation import SAME, CannotAsk, Look, Outcome, Relation, Variation
from canary.relations.trained_padding import trained_padding
from canary.relations.trajectory import Recorded, near_steps

COLUMNS = 7
VARIATIONS: Sequence[Variation] = (
    {"name": "more padding", **SAME, "no_random": True, "widened": COLUMNS},
    {"name": "no dropout", **SAME},
    {"name": "no dropout, off by one rounding", **SAME, "perturbed": 1},
)
RELATION = Relation(
    "padding",
    "neighbours",
    "more padding changes no log-probability and no loss, and padding is not trained on",
    "padding is attended to, trained on or part of a mean: a mask or positions are wrong",
    "https://github.com/huggingface/trl/tree/main/tests/invariant",
    variations=(*VARIATIONS,),
    of_loop=(*VARIATIONS,),
)


def ask(look: Look) -> Outcome:
    """Look for trained padding, then add columns of it to a padded row, where its padding is."""
    trained = trained_padding(look, RELATION) or hidden_text(look, RELATION)
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


def judge(base: Recorded, wider: Recorded, plain: Recorded, moved: Recorded) -> Outcome:
    """Compare the losses and gradients of wider batches with those of the batches as they are."""
    found = near_steps(RELATION, plain, moved, wider)
    if found["status"] == "broken":
        found["message"] = f"with {COLUMNS} more columns of padding, {found['message']}"
    return found
