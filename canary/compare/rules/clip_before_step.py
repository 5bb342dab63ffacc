"""Clipping in time."""

from __future__ import annotations

from canary.compare.rules.facts import NO_UPDATES, counted, updates_of
from canary.compare.rules.rule import Answer, Rule, answer, not_asked, only_for
from canary.record.types import RunRecord

FEWEST = 2
"""Clips that must show the same."""


def judge(record: RunRecord) -> Answer:
    """Gradients are clipped between the last backward of an update and the optimizer's step."""
    seen = updates_of(record)
    if not seen:
        return not_asked(NO_UPDATES)
    clipped = [
        one
        for one in seen.get("optimizers", [])
        if not one.get("closure") and (one.get("clips_before") or one.get("clips_after"))
    ]
    if not clipped:
        return only_for("trainings whose clipping was seen")
    between = max(one.get("clips_between", 0) for one in clipped)
    if between >= FEWEST:
        words = f"{between} times, gradients were clipped before all backwards of their update: "
        return answer(True, f"{words}later micro-batches weigh more", size=between)
    # The look may end with the step of its last update.
    late = [
        one
        for one in clipped
        if not one.get("clips_before") and one.get("clips_after", 0) >= max(2, one["updates"] - 1)
    ]
    if not late:
        before = max(one.get("clips_before", 0) for one in clipped)
        return answer(False, f"gradients were clipped before {counted(before, 'step')}")
    count = late[0]["clips_after"]
    acted = any(one.get("clips_after_acted") for one in late)
    return answer(
        True,
        f"gradients were clipped {count} times after the optimizer's step, and never before it",
        size=count,
        place="update 1",
        doubt="" if acted else "no norm was above the limit: is it only measured?",
    )


RULE = Rule(
    "clip_before_step",
    "gradients are clipped when they are complete, before the optimizer uses them",
    "the training clips in each update, and never or too early before the step",
    "clip once per update, between its last backward() and optimizer.step()",
    "https://arxiv.org/abs/2506.14813",
    judge,
)
