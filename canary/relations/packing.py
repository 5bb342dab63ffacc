"""Documents that are packed into one row."""

from __future__ import annotations

from typing import Any

from canary.relations.relation import (
    Call,
    CannotAsk,
    Look,
    Outcome,
    Relation,
    Tensor,
    broken,
    other_ids,
    token_call,
)

RELATION = Relation(
    "packing",
    "neighbours",
    "a packed document has the same log-probabilities beside another one, and alone",
    "packed documents see each other: no block mask, or positions that do not begin again; or "
    "positions are constant",
    "https://github.com/huggingface/trl/pull/3526",
)
LEAST_TEXT = 4
"""Tokens of a text that cannot be packed documents of one token each."""
OF_PACKS = ("cu_seq", "max_length_")
"""Beginnings of arguments that say where packed documents end."""


def ask(look: Look) -> Outcome:
    """Change the document before another one of a packed row, then give the other one alone."""
    call = token_call(look)
    assert call.ids is not None
    constant = _constant_positions(look, call)
    if constant is not None:
        return constant
    row, first, end = _documents(look, call)
    before = look.scores(call)
    skip = before.shape[1] - (call.ids.shape[1] - 1)
    # The first token of a document is said by the one before it.
    begins, ends = max(0, first + skip), end - 1 + skip
    packed = before[row : row + 1, begins:ends]
    ids = call.ids.clone()
    ids[row, : first - 1] = other_ids(ids[row, : first - 1], call)
    changed = look.scores(call, input_ids=ids)[row : row + 1, begins:ends]
    made = look.compared(RELATION.id, call, packed, changed)
    if made["status"] == "holds":
        alone = look.scores(call, **_alone(call, row, first, end))
        made = look.compared(RELATION.id, call, packed, alone[:, -packed.shape[1] :])
        made["message"] = f"alone and packed, {made['message']}"
    if made["status"] == "broken":
        made["place"] = f"row {row}, the document that begins at token {first}"
    return made


def _constant_positions(look: Look, call: Call) -> Outcome | None:
    """Return that all tokens of a text have one position, as if each was a document of its own."""
    positions = call.arguments.get("position_ids")
    assert call.ids is not None
    if positions is None or getattr(positions, "shape", None) != call.ids.shape:
        return None
    for row, (first, end) in enumerate(look.spans(call)):
        known = {*positions[row, first:end].tolist()}
        if end - first >= LEAST_TEXT and len(known) == 1:
            words = f"all {end - first} tokens of a text have the position {known.pop()}"
            return broken(RELATION, words, f"row {row}")
    return None


def _alone(call: Call, row: int, first: int, end: int) -> dict[str, Any]:
    """Return the arguments of one document as a row of its own."""
    assert call.ids is not None
    found: dict[str, Any] = {
        name: None
        for name, value in call.arguments.items()
        if name != "labels" and (hasattr(value, "dim") or name.startswith(OF_PACKS))
    }
    found["input_ids"] = call.ids[row : row + 1, first:end]
    positions = _positions(call)
    if positions is not None:
        found["position_ids"] = positions[row : row + 1, first:end] - positions[row, first]
    return found


def _positions(call: Call) -> Tensor | None:
    positions = call.arguments.get("position_ids")
    return positions if getattr(positions, "dim", lambda: 0)() == 2 else None


def _documents(look: Look, call: Call) -> tuple[int, int, int]:
    """Return a row with several documents, and where its second one begins and ends."""
    positions = _positions(call)
    assert call.ids is not None
    if positions is not None:
        for row, line in enumerate(positions):
            _, end = look.spans(call)[row]
            starts = (line[1:end] < line[: end - 1]).nonzero().flatten().tolist()
            if starts:
                edges = [*(one + 1 for one in starts), end]
                return row, edges[0], edges[1]
    arguments = getattr(look.trainer, "args", None)
    packs = bool(getattr(arguments, "packing", False))
    if packs and getattr(arguments, "packing_strategy", None) == "wrapped":
        raise CannotAsk("packing_strategy wrapped joins documents on purpose")
    rows = [line.tolist() for line in call.ids]
    full = all(end - first == len(rows[0]) for first, end in look.spans(call))
    for row, line in enumerate(rows if full else []):
        ends = [place + 1 for place, one in enumerate(line[:-3]) if one in look.eos_ids]
        inside = [place for place in ends if place > 1]
        if inside and packs:
            return row, inside[0], [*inside, len(line)][1]
        if inside:
            # Turns of a chat end like documents, and texts may be joined on purpose.
            raise CannotAsk("documents are joined without a mark between them, as in pretraining")
    raise CannotAsk("no row holds several documents")
