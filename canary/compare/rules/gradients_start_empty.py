"""Gradients of earlier updates."""

from __future__ import annotations

from canary.compare.rules.facts import NO_UPDATES, updates_of
from canary.compare.rules.rule import Answer, Rule, answer, not_asked
from canary.record.types import RunRecord

FEWEST = 2
"""Updates that must begin with old gradients."""


def judge(record: RunRecord) -> Answer:
    """The gradients that an update used are gone when the next one's last backward begins."""
    seen = updates_of(record)
    if not seen:
        return not_asked(NO_UPDATES)
    asked = [one for one in seen.get("optimizers", []) if not one.get("closure")]
    asked = [one for one in asked if one.get("left", 0) + one.get("emptied", 0) >= FEWEST]
    if not asked:
        return not_asked(f"fewer than {FEWEST + 1} updates with a backward before them")
    worst = max(asked, key=lambda one: one.get("left", 0))
    left, emptied = worst.get("left", 0), worst.get("emptied", 0)
    total = left + emptied
    if not left:
        return answer(False, f"the gradients of {total} updates were gone before the next one")
    return answer(
        True,
        f"{left} of {total} updates added their gradients to those of the update before",
        size=left,
        place="update 2" if not emptied else "",
        doubt="the gradients of other updates were gone" if emptied else "",
    )


RULE = Rule(
    "gradients_start_empty",
    "no update uses the gradients of the one before again",
    "a backward before each update, outside of the optimizer's step",
    "call optimizer.zero_grad() once per update, after the step or before the first backward",
    "https://arxiv.org/abs/2506.14813",
    judge,
)
