"""Save, load and go on."""

from __future__ import annotations

from canary.relations.relation import Outcome, Relation, broken, holds, outcome
from canary.relations.trajectory import Recorded, equal_steps, rows_of

RELATION = Relation(
    "resume",
    "start and end",
    "a resumed training goes on bit for bit as the uninterrupted one",
    "the checkpoint lacks the optimizer, the scheduler, random states or the place in the data",
    "https://github.com/huggingface/transformers/issues/26413",
    moment=None,
    variations=(
        {"name": "saves after update 3", "save_at": 3},
        {"name": "resumes at update 3", "resume": True},
    ),
)
SAVED_AT = 3


def judge(base: Recorded, saved: Recorded, resumed: Recorded) -> Outcome:
    """Compare the uninterrupted launch with one that saves, and both with the resumed one."""
    whole = equal_steps(RELATION, base, saved)
    if whole["status"] == "broken":
        whole["message"] = f"saving alone moves the training: {whole['message']}"
        return whole
    before, after = rows_of(base)[SAVED_AT:], rows_of(resumed)
    for step, (was, now) in enumerate(zip(before, after, strict=False), start=SAVED_AT + 1):
        if was and now and sorted(was) != sorted(now):
            return broken(RELATION, "other rows enter after the resume", f"step {step}")
    if not after and not resumed.get("trajectory", {}).get("losses"):
        return outcome(RELATION.id, "undecided", "the resumed launch recorded no step")
    found = equal_steps(RELATION, base, resumed, first=SAVED_AT + 1)
    return holds(RELATION, found["message"]) if found["status"] == "holds" else found
