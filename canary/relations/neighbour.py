"""Another neighbour in the micro-batch."""

from __future__ import annotations

from canary.relations.relation import CannotAsk, Look, Outcome, Relation, broken, other_ids

RELATION = Relation(
    "neighbour",
    "neighbours",
    "a row's log-probabilities do not depend on the other rows, nor on an earlier batch",
    "a module mixes the rows, as batch normalisation does, or a collator reuses a buffer",
    "https://github.com/huggingface/trl/tree/main/tests/invariant",
)


def ask(look: Look) -> Outcome:
    """Look for ends of earlier rows, then change the tokens of all rows but the first."""
    left = _left_over(look)
    if left is not None:
        return left
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


def ask_at_end(look: Look) -> Outcome:
    """Look for ends of earlier rows in later updates."""
    left = _left_over(look)
    if left is None:
        raise CannotAsk("no row ends like an earlier one")
    return left


def _left_over(look: Look) -> Outcome | None:
    """Return that an end of a row is left over from an earlier batch; None if none is known."""
    found = look.buffer.left_over()
    if not found:
        return None
    worst = found[0]
    words = f"row {worst.row} ends with {worst.size} tokens of the row that was there before"
    if len(found) > 1:
        words += f", as {len(found) - 1} more do"
    return broken(RELATION, words, f"model call {worst.call}, row {worst.row}, token {worst.first}")
