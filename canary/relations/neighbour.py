"""Another neighbour in the micro-batch."""

from __future__ import annotations

from canary.relations.relation import CannotAsk, Look, Outcome, Relation, other_ids

RELATION = Relation(
    "neighbour",
    "neighbours",
    "a row's log-probabilities do not depend on the other rows",
    "a module mixes the rows of a micro-batch, as batch normalisation does",
    "https://github.com/huggingface/trl/tree/main/tests/invariant",
)


def ask(look: Look) -> Outcome:
    """Change the tokens of all rows but the first."""
    call = look.call
    if call.ids is None:
        raise CannotAsk("the model gets no token ids")
    if call.shape[0] < 2:
        raise CannotAsk("each micro-batch has one row")
    ids = call.ids.clone()
    ids[1:] = other_ids(ids[1:], call)
    before = look.scores(call)
    after = look.scores(call, input_ids=ids)
    counts = look.counted(call, before)[:1] if call.scores_tokens else None
    return look.compared(RELATION.id, call, before[:1], after[:1], counts)
