"""Micro-batches of an update."""

from __future__ import annotations

from collections.abc import Sequence

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
    "the loss is averaged, or gradients are clipped or emptied, in each micro-batch in place of "
    "each update",
    "https://github.com/huggingface/transformers/issues/24725",
)
FACTOR = 8.0
"""Times the spread of weights within a micro-batch, which shows how exactly they can be read."""
FLOOR = 16 * 1.2e-7
"""Relative; sixteen roundings of float32."""
EVEN = 0.02
"""Relative; five roundings of a gradient in bfloat16. A larger spread is no rounding."""
LEAST = 1e-3
"""Of the largest weight; below, a token is not trained on."""


def ask(look: Look) -> Outcome:
    """Compare the weights of trained tokens across the micro-batches of the first update."""
    calls = [one for one in look.calls if one.labels is not None]
    if len(calls) < 2:
        raise CannotAsk("each update has one micro-batch")
    if look.changed is not None:
        between = look.changed
        return broken(
            RELATION,
            f"after micro-batch {between.micro_batch} the accumulated gradient has the norm "
            f"{between.was:.4g}, and before the next one {between.now:.4g}",
            between.name,
            (between.was, between.now),
        )
    _refuse_advantages(look, calls)
    used = [_used(call) for call in calls]
    read = [one for weights in used if (one := _even_weight(weights)) is not None]
    if len(read) < len(calls):
        raise CannotAsk("the tokens of a micro-batch have different weights")
    sizes = [size for size, _ in read]
    least, most = sizes.index(min(sizes)), sizes.index(max(sizes))
    allowed = max(FACTOR * max(spread for _, spread in read), FLOOR)
    apart = sizes[most] / sizes[least] - 1
    if apart <= allowed:
        words = (
            f"a token weighs {sizes[0]:.4g} in each of {len(calls)} micro-batches "
            f"(relative difference {apart:.2g}, allowed {allowed:.2g})"
        )
        return holds(RELATION, words)
    return broken(
        RELATION,
        f"a token weighs {sizes[most]:.4g} in micro-batch {most} with {len(used[most])} tokens, "
        f"and {sizes[least]:.4g} in micro-batch {least} with {len(used[least])} (relative "
        f"difference {apart:.2g}, allowed {allowed:.2g})",
        f"micro-batch {most}",
        (sizes[most], sizes[least]),
    )


def ask_at_end(look: Look) -> Outcome:
    """Look whether gradients are set to zero before each backward pass, not after each update."""
    if look.lost < 2:
        raise CannotAsk("no gradients were lost in both of the first two updates")
    words = "only the last micro-batch of an update has a gradient: those before it are set to zero"
    return broken(RELATION, words, "update 1")


def _refuse_advantages(look: Look, calls: Sequence[Call]) -> None:
    """Raise CannotAsk if advantages weigh tokens: those of a micro-batch may be equal by chance."""
    pairs = {"chosen", "label"} & set(next(iter(look.examples), {}))
    lowers = any(bool((one.weights < 0).any()) for one in calls if one.weights is not None)
    samples = hasattr(getattr(look.trainer, "args", None), "num_generations")
    if samples or (lowers and not pairs):
        raise CannotAsk("advantages give tokens different weights on purpose")


def _used(call: Call) -> Tensor:
    """Return the weights of the trained tokens."""
    assert call.weights is not None
    size = call.weights.abs()
    return size[size > LEAST * size.max()]


def _even_weight(used: Tensor) -> tuple[float, float] | None:
    """Return the weight of the trained tokens and its relative spread, if all have the same."""
    if not len(used):
        return None
    middle = float(used.median())
    spread = float((used / middle - 1).abs().quantile(0.95))
    return (middle, spread) if spread <= EVEN else None
