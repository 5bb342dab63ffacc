"""A row with padding, for the relations about it."""

from __future__ import annotations

from canary.relations.relation import Call, CannotAsk, Look, Tensor, is_packed


def padded_row(look: Look) -> tuple[Call, str, int]:
    """Return a call, the side of its padding, and its row with most of it.

    Raises:
        CannotAsk: no row has padding.
    """
    if look.call.ids is None:
        raise CannotAsk("the model gets no token ids")
    if look.call.is_encoder_decoder:
        raise CannotAsk("the ids are those of an encoder, and the logits those of a decoder")
    if not look.call.scores_tokens and len(look.call.shape) > 2:
        raise CannotAsk("the model has no token logits")
    for call in look.calls:
        if call.ids is None or is_packed(call):
            continue
        if _holds_padding_inside(look, call):
            continue
        width = call.ids.shape[1]
        spans = enumerate(look.spans(call))
        rows = [(first, width - end, row) for row, (first, end) in spans if end > first]
        if not rows:
            continue
        left, right = max(rows), max(rows, key=lambda one: one[1])
        if left[0] > right[1]:
            return call, "left", left[2]
        if right[1]:
            return call, "right", right[2]
    raise CannotAsk("no row of the first update has padding")


def _holds_padding_inside(look: Look, call: Call) -> bool:
    """Whether the token of padding stands in texts too, as noise does, and no mask tells which."""
    mask = call.arguments.get("attention_mask")
    assert call.ids is not None
    if getattr(mask, "shape", None) == call.ids.shape:
        return False
    rows = zip(call.ids.tolist(), look.spans(call), strict=True)
    return any(look.pad_id in line[first : end - 1] for line, (first, end) in rows)


def example_of(
    look: Look, call: Call, scores: Tensor, row: int, span: tuple[int, int], width: int
) -> Tensor:
    """Return what is said of one example: of its tokens, or of its row."""
    if not call.scores_tokens:
        return scores[row : row + 1]
    return look.example(scores, row, span, width)
