"""The same completions, rewarded again."""

from __future__ import annotations

from canary.relations.relation import CannotAsk, Look, Outcome, Relation, broken, holds, outcome
from canary.relations.sampling import Sampling

RELATION = Relation(
    "reward_function",
    "sampling",
    "a completion has the same reward in another order, alone, later and again",
    "the reward depends on other rows, on the clock, on chance, or on a state of its own",
    "https://arxiv.org/abs/2402.03300",
    moment="last",
)


def ask(look: Look) -> Outcome:
    """Compare the rewards of the first call with those of the same completions."""
    found: Sampling = look.sampling
    if not found.rewards:
        raise CannotAsk("no reward function or reward model was seen; see canary.reward_function")
    changed = next((one for one in found.rewards if one.changed), None)
    if changed is not None:
        before, after = changed.values or (float("nan"), float("nan"))
        return broken(
            RELATION,
            f"{changed.name} gives {before:.6g}, and {after:.6g} {changed.changed}: "
            f"{changed.cause}",
            f"{changed.name}, {changed.place}",
            (before, after),
        )
    unasked = [one for one in found.rewards if one.unasked]
    if len(unasked) == len(found.rewards):
        return outcome(RELATION.id, "undecided", f"{unasked[0].name}: {unasked[0].unasked}")
    names = ", ".join(one.name for one in found.rewards if not one.unasked)
    rows = sum(one.rows for one in found.rewards if not one.unasked)
    return holds(RELATION, f"{names}: {rows} rewards are the same, however they are asked")
