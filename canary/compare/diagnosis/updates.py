"""The updates of PPO's first step: the first whose loss differs, gradients and clipping."""

from __future__ import annotations

from canary.compare.diagnosis.facts import Facts
from canary.compare.diagnosis.suspects import Evidence
from canary.compare.exact.learning_stages import loss_floor
from canary.compare.exact.tolerances import relative_difference, tolerance_for


def first_other_update(facts: Facts) -> int | None:
    """Return the first update of step 1, from 1, whose loss differs, or None."""
    before, after = facts.exact(lambda exact: exact.get("first_loss", {}).get("updates", []))
    allowed, floor = tolerance_for(facts.now).trajectory, loss_floor(facts.now)
    for place, (was, now) in enumerate(zip(before, after, strict=False)):
        if relative_difference(was, now, floor) > allowed:
            return place + 1
    return None


LEFTOVER = 1e-2
"""Leftover gradients of an earlier step change the norm by more than this share."""
NO_WORK = ("detach", "alias", "view", "zeros", "empty")
"""Operators with one of these in their name compute nothing."""


def gradient_cut(facts: Facts) -> Evidence | None:
    """Return evidence of a backward through less of the graph, or None.

    A step computes fewer matrix products in as many forward passes, and nothing more often.
    """
    was, now = facts.forwards
    fewer = -facts.more_calls("mm.")
    more = [row.name for row in facts.operators.rows if (row.growth_calls or 0) > 0]
    others = [name for name in more if not any(part in name for part in NO_WORK)]
    if was is None or was != now or fewer <= 0 or others:
        return None
    detached = facts.more_calls("detach")
    words = f"{fewer:,.0f} fewer matrix products per step for equally many forward passes"
    if detached > 0:
        words += f", and {detached:,.0f} more calls of detach"
    return Evidence("operators", words, unit="calls")


def norm_change(facts: Facts, step: int) -> float:
    """Return the relative difference of the gradient norm at a step, from 1."""
    was, now = facts.exact(lambda exact: exact.get("trajectory", {}).get("grad_norms", []))
    return relative_difference(was[step - 1], now[step - 1])


def unclipped(facts: Facts) -> Evidence | None:
    """Return evidence that clipping of the policy or values began or ended in step 1, or None."""
    for name in ("value_clip_ratio", "clip_ratio"):
        was, now = (next(iter(side), None) for side in facts.metric(name))
        if was is not None and now is not None and (was == 0) != (now == 0):
            words = f"{name} of step 1 {was:.3g} -> {now:.3g}"
            return Evidence("signal", words, was, now)
    return None
