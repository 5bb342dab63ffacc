"""Another order of the rows."""

from __future__ import annotations

from canary.relations.relation import CannotAsk, Look, Outcome, Relation

RELATION = Relation(
    "order",
    "neighbours",
    "the order of the rows does not change their log-probabilities",
    "a module mixes the rows of a micro-batch",
    "https://github.com/huggingface/trl/tree/main/tests/invariant",
)


def ask(look: Look) -> Outcome:
    """Reverse the rows of the micro-batch."""
    call, rows = look.call, look.call.shape[0]
    if rows < 2:
        raise CannotAsk("each micro-batch has one row")
    backwards = list(reversed(range(rows)))
    reversed_rows = look.picked(call, backwards)
    if not reversed_rows:
        raise CannotAsk("the rows are inside an argument that is no tensor")
    before = look.scores(call)
    after = look.scores(call, **reversed_rows)[backwards]
    counts = look.counted(call, before) if call.scores_tokens else None
    return look.compared(RELATION.id, call, before, after, counts)
