"""Which token each position is trained towards."""

from __future__ import annotations

from canary.relations.documents import LEAST, SURE
from canary.relations.relation import (
    Call,
    CannotAsk,
    Look,
    Outcome,
    Relation,
    Tensor,
    broken,
    holds,
    token_call,
)

RELATION = Relation(
    "next_token",
    "what is trained",
    "each position is trained towards the next token",
    "the labels are shifted twice, once by the data and once by the loss, or never; or they are "
    "those of other rows",
    "https://github.com/huggingface/transformers/issues/47394",
)
WRONG = {0: "its own token", 2: "the token after the next"}
"""What a label is, by the distance of its place."""
LEAST_TOKENS = 8


def ask(look: Look) -> Outcome:
    """Compare the labels that the gradient shows with the tokens around them."""
    token_call(look)
    calls = [
        call
        for call in look.calls
        if call.ids is not None
        and call.labels is not None
        and (call.are_labels_known or call.labels.shape == call.shape[:2])
    ]
    shares = {shift: _share(look, calls, shift) for shift in (1, *WRONG)}
    alike, of = shares[1]
    if of < LEAST_TOKENS:
        raise CannotAsk(f"no call shows at least {LEAST_TOKENS} labels beside their tokens")
    if alike >= SURE * of:
        return holds(RELATION, f"{alike} of {of} labels are the next token")
    for shift, what in WRONG.items():
        other, others = shares[shift]
        if others >= LEAST_TOKENS and other >= SURE * others:
            return broken(RELATION, f"{other} of {others} labels are {what}", values=(other, alike))
    rows, of_rows = _of_other_rows(look, calls)
    if rows and rows >= SURE * of_rows:
        words = f"in {rows} of {of_rows} rows, the labels are the next tokens of another row"
        return broken(RELATION, words, values=(rows, of_rows))
    raise CannotAsk("the labels match no nearby token")


def _of_other_rows(look: Look, calls: list[Call]) -> tuple[int, int]:
    """Return how many rows have the labels of another row of their micro-batch, and of how many.
    A single row may be where it belongs."""
    alike = of = 0
    for call in calls:
        assert call.labels is not None
        there, used = _beside(look, call, 1)
        labels = call.labels[:, : there.shape[1]]
        for row in range(len(labels)):
            count = int(used[row].sum())
            if count < LEAST_TOKENS:
                continue
            of += 1
            same = (labels[row] == there)[:, used[row]].sum(1)
            same[row] = 0
            alike += int(same.max()) >= SURE * count
    return alike, of


def _share(look: Look, calls: list[Call], shift: int) -> tuple[int, int]:
    """Return how many trained labels are the token at a distance, and how many have such one."""
    alike = of = 0
    for call in calls:
        assert call.labels is not None
        there, used = _beside(look, call, shift)
        alike += int((call.labels[:, : there.shape[1]] == there)[used].sum())
        of += int(used.sum())
    return alike, of


def _beside(look: Look, call: Call, shift: int) -> tuple[Tensor, Tensor]:
    """Return the tokens at a distance from where labels are said, and where labels are trained on
    and have one; both of shape (rows, labels)."""
    weights, labels, ids = call.weights, call.labels, call.ids
    assert weights is not None
    assert labels is not None
    assert ids is not None
    # A call may leave out the logits of the first tokens. Logits are of the next token,
    # log-probabilities of labels are of their own.
    first = ids.shape[1] - labels.shape[1] + shift - (1 if call.are_labels_known else 0)
    there = ids[:, first:]
    both = min(there.shape[1], labels.shape[1])
    size = weights.abs()
    used = (size > LEAST * size.max())[:, :both]
    for row, (_, end) in enumerate(look.spans(call)):
        # The token at this distance is padding: the text goes on in the labels alone.
        used[row, max(0, end - first) :] = False
    return there[:, :both], used
