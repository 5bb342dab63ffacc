"""Documents that are packed into one row."""

from __future__ import annotations

from canary.relations.relation import (
    Call,
    CannotAsk,
    Look,
    Outcome,
    Relation,
    other_ids,
    token_call,
)

RELATION = Relation(
    "packing",
    "neighbours",
    "a changed document leaves the documents packed beside it as they are",
    "packed documents see each other: no block mask, or positions that do not begin again",
    "https://github.com/huggingface/trl/pull/3526",
)


def ask(look: Look) -> Outcome:
    """Change the first document of a packed row."""
    call = token_call(look)
    assert call.ids is not None
    row, second = _documents(look, call)
    ids, before = call.ids.clone(), look.scores(call)
    ids[row, : second - 1] = other_ids(ids[row, : second - 1], call)
    after = look.scores(call, input_ids=ids)
    skip = before.shape[1] - (ids.shape[1] - 1)
    begins = max(0, second + skip)
    made = look.compared(
        RELATION.id, call, before[row : row + 1, begins:], after[row : row + 1, begins:]
    )
    if made["status"] == "broken":
        made["place"] = f"row {row}, the document that begins at token {second}"
    return made


def _documents(look: Look, call: Call) -> tuple[int, int]:
    """Return a row with several documents, and where its second one begins."""
    positions = call.arguments.get("position_ids")
    if positions is not None and getattr(positions, "dim", lambda: 0)() == 2:
        for row, line in enumerate(positions):
            starts = (line[1:] < line[:-1]).nonzero().flatten().tolist()
            if starts:
                return row, starts[0] + 1
    assert call.ids is not None
    packs = bool(getattr(getattr(look.trainer, "args", None), "packing", False))
    rows = [line.tolist() for line in call.ids]
    full = all(end - first == len(rows[0]) for first, end in look.spans(call))
    # Turns of a chat end like documents. Rows that are cut anywhere are no chats.
    cut_anywhere = any(line[-1] not in look.eos_ids for line in rows)
    if full and (packs or cut_anywhere):
        for row, line in enumerate(rows):
            ends = [place + 1 for place, one in enumerate(line[:-3]) if one in look.eos_ids]
            inside = [place for place in ends if place > 1]
            if len(inside) > (0 if packs else 1):
                return row, inside[0]
    raise CannotAsk("no row holds several documents")
