"""No token sees a later one."""

from __future__ import annotations

from canary.relations.relation import (
    CannotAsk,
    Look,
    Outcome,
    Relation,
    other_ids,
    unpacked_call,
)

RELATION = Relation(
    "causality",
    "what is trained",
    "a later token does not change the log-probabilities of earlier ones",
    "the causal mask is missing, or an attention mask of four dimensions replaces it",
    "https://arxiv.org/abs/2506.09280",
)


def ask(look: Look) -> Outcome:
    """Change the second half of each example: what is said of the first half must not move."""
    call = unpacked_call(look)
    if call.is_encoder_decoder:
        raise CannotAsk("an encoder sees all tokens on purpose")
    known = call.labels is not None and call.weights is not None
    if known and not any(one.is_next_token for one in look.documents(call) if any(one.trained)):
        raise CannotAsk("the loss is not a next-token loss, so tokens may see later ones")
    assert call.ids is not None
    ids, before = call.ids.clone(), look.scores(call)
    counts = look.counted(call, before)
    left_out = ids.shape[1] - 1 - before.shape[1]
    for row, (first, end) in enumerate(look.spans(call)):
        middle = first + max(2, (end - first) // 2)
        counts[row, max(0, middle - 1 - left_out) :] = False
        ids[row, middle:end] = other_ids(ids[row, middle:end], call)
    if not counts.any():
        raise CannotAsk("no row is long enough")
    return look.compared(RELATION.id, call, before, look.scores(call, input_ids=ids), counts)
