"""A row with padding, for the relations about it."""

from __future__ import annotations

from canary.relations.relation import Call, CannotAsk, Look, is_packed, token_call


def padded_row(look: Look) -> tuple[Call, str, int]:
    """Return a call, the side of its padding, and its row with most of it.

    Raises:
        CannotAsk: no row has padding.
    """
    token_call(look)
    for call in look.calls:
        if call.ids is None or not call.scores_tokens or is_packed(call):
            continue
        width = call.ids.shape[1]
        rows = [(first, width - end, row) for row, (first, end) in enumerate(look.spans(call))]
        left, right = max(rows), max(rows, key=lambda one: one[1])
        if left[0] > right[1]:
            return call, "left", left[2]
        if right[1]:
            return call, "right", right[2]
    raise CannotAsk("no row of the first update has padding")
