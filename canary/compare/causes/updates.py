"""The updates of PPO's first step: from which of them on the loss differs, and what is clipped."""

from __future__ import annotations

from canary.collect.jsonio import number
from canary.compare.causes.facts import Facts
from canary.compare.learning_stages import loss_floor
from canary.compare.suspects import Evidence
from canary.compare.tolerances import relative_difference, tolerance_for


def first_other_update(facts: Facts) -> int | None:
    """The first of the updates of step 1 whose loss differs, from 1; None where none does or a step
    is one update."""
    before, after = (side or [] for side in facts.exact("first_loss", "updates"))
    allowed, floor = tolerance_for(facts.now).trajectory, loss_floor(facts.now)
    for place, (was, now) in enumerate(zip(before, after, strict=False)):
        if relative_difference(number(was), number(now), floor) > allowed:
            return place + 1
    return None


def unclipped(facts: Facts) -> Evidence | None:
    """That something is no longer clipped in step 1, of policy or values; or is for the first
    time."""
    for name in ("value_clip_ratio", "clip_ratio"):
        before, after = facts.exact("trajectory", "rl", name)
        if before and after and (before[0] == 0) != (after[0] == 0):
            words = f"{name} of step 1 {before[0]:.3g} -> {after[0]:.3g}"
            return Evidence("signal", words, before[0], after[0])
    return None
