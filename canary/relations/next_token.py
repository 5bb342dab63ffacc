"""Which token each position is trained towards."""

from __future__ import annotations

from canary.relations.documents import LEAST, SURE
from canary.relations.relation import (
    Call,
    CannotAsk,
    Look,
    Outcome,
    Relation,
    broken,
    holds,
    token_call,
)

RELATION = Relation(
    "next_token",
    "what is trained",
    "each position is trained towards the next token",
    "the labels are shifted twice, once by the data and once by the loss, or never",
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
    raise CannotAsk("the labels match no nearby token")


def _share(look: Look, calls: list[Call], shift: int) -> tuple[int, int]:
    """Return how many trained labels are the token at a distance, and how many have such one."""
    alike = of = 0
    for call in calls:
        weights, labels, ids = call.weights, call.labels, call.ids
        assert weights is not None
        assert labels is not None
        assert ids is not None
        # A call may leave out the logits of the first tokens. Logits are of the next token,
        # log-probabilities of labels are of their own.
        first = ids.shape[1] - labels.shape[1] + shift - (1 if call.are_labels_known else 0)
        there = ids[:, first:]
        both = min(there.shape[1], labels.shape[1])
        there = there[:, :both]
        size = weights.abs()
        used = (size > LEAST * size.max())[:, :both]
        for row, (_, end) in enumerate(look.spans(call)):
            # The token at this distance is padding: the text goes on in the labels alone.
            used[row, max(0, end - first) :] = False
        alike += int((labels[:, :both] == there)[used].sum())
        of += int(used.sum())
    return alike, of
