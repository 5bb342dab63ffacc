"""Parameters between updates."""

from __future__ import annotations

from canary.compare.rules.facts import NO_UPDATES, updates_of
from canary.compare.rules.rule import Answer, Rule, answer, not_asked
from canary.record.types import RunRecord


def judge(record: RunRecord) -> Answer:
    """An update begins with the parameters that the one before left.

    Trainings write parameters on purpose, so this is always a note. Those that write before every
    update (limits of weights, norms) are not asked.
    """
    seen = updates_of(record)
    if not seen:
        return not_asked(NO_UPDATES)
    asked = [one for one in seen.get("optimizers", []) if one.get("updates", 0) > 1]
    if not asked:
        return not_asked("the look has one update")
    for one in asked:
        written = one.get("written_before", [])
        if len(written) > 1 and len(written) >= one["updates"] - 1:
            return not_asked("the training itself writes parameters before every update")
        if written:
            name = one.get("written", "a tensor")
            places = ", ".join(map(str, written[:3])) + (", ..." if len(written) > 3 else "")
            return answer(
                True,
                f"parameters changed between the updates, before update {places} ({name})",
                size=len(written),
                place=f"update {written[0]}",
                doubt="is an average of weights, or what an evaluation loads, left in on purpose?",
            )
    updates = max(one["updates"] for one in asked)
    return answer(False, f"sampled parameters changed only in the {updates} updates")


RULE = Rule(
    "only_the_optimizer_writes",
    "parameters change only in updates",
    "one rank, and an optimizer that shares no tensors with another",
    "restore the trained weights after an evaluation with others",
    "https://arxiv.org/abs/2506.14813",
    judge,
)
