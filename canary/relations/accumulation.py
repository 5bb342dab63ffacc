"""Micro-batches of an update."""

from __future__ import annotations

from canary.relations.relation import (
    Call,
    CannotAsk,
    Look,
    Outcome,
    Relation,
    Tensor,
    broken,
    holds,
)

RELATION = Relation(
    "accumulation",
    "same work",
    "each trained token of an update weighs the same, whatever its micro-batch",
    "the loss is averaged per micro-batch, although these hold different numbers of tokens",
    "https://github.com/huggingface/transformers/issues/24725",
)
APART = 0.01
"""Relative; weights are read from gradients, which are rounded."""
EVEN = 0.02
LEAST = 1e-3
"""Of the largest weight; below, a token is not trained on."""


def ask(look: Look) -> Outcome:
    """Compare the weights of trained tokens across the micro-batches of the first update."""
    calls = [one for one in look.calls if one.labels is not None]
    if len(calls) < 2:
        raise CannotAsk("each update has one micro-batch")
    used = [_used(call) for call in calls]
    sizes = [size for one in used if (size := _even_weight(one)) is not None]
    if len(sizes) < len(calls):
        raise CannotAsk("the tokens of a micro-batch do not weigh the same")
    least, most = sizes.index(min(sizes)), sizes.index(max(sizes))
    if sizes[most] / sizes[least] - 1 <= APART:
        return holds(
            RELATION, f"a token weighs {sizes[0]:.4g} in each of {len(calls)} micro-batches"
        )
    return broken(
        RELATION,
        f"a token weighs {sizes[most]:.4g} in micro-batch {most} with {len(used[most])} tokens, "
        f"and {sizes[least]:.4g} in micro-batch {least} with {len(used[least])}",
        f"micro-batch {most}",
        (sizes[most], sizes[least]),
    )


def _used(call: Call) -> Tensor:
    """Return the weights of the trained tokens."""
    assert call.weights is not None
    size = call.weights.abs()
    return size[size > LEAST * size.max()]


def _even_weight(used: Tensor) -> float | None:
    """Return the weight of the trained tokens, if all have the same."""
    if not len(used):
        return None
    middle = float(used.median())
    return middle if float((used / middle - 1).abs().quantile(0.95)) <= EVEN else None
