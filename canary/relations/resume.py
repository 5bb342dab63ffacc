"""Save, load and go on."""

from __future__ import annotations

from canary.relations.relation import Outcome, Relation, broken, holds, outcome
from canary.relations.trajectory import Recorded, equal_steps, first_apart, rows_of

RELATION = Relation(
    "resume",
    "start and end",
    "a resumed training equals the uninterrupted one bit for bit",
    "the checkpoint lacks the optimizer, the scheduler, random states or the place in the data",
    "https://github.com/huggingface/transformers/issues/26413",
    moment=None,
    variations=(
        {"name": "saves after update 4", "save_at": 4},
        {"name": "resumes at update 4", "resume": True},
    ),
)
SAVED_AT = 4
"""Two or four updates may share a rollout, and trl does not save a rollout."""
FIRST = SAVED_AT + 1


def judge(base: Recorded, saved: Recorded, resumed: Recorded) -> Outcome:
    """Compare the uninterrupted launch with one that saves, and both with the resumed one."""
    whole = equal_steps(RELATION, base, saved)
    if whole["status"] == "broken":
        whole["message"] = f"saving a checkpoint already changes the training: {whole['message']}"
        return whole
    if (step := _apart(base, resumed, sampled=False)) is not None:
        words = "the rows differ after the resume: the position in the data was not restored"
        return broken(RELATION, words, f"step {step}")
    if (step := _apart(base, resumed, sampled=True)) is not None:
        words = "the same prompts have other completions after the resume"
        return outcome(RELATION.id, "undecided", words, f"step {step}")
    after = rows_of(resumed)
    if not after and not resumed.get("trajectory", {}).get("losses"):
        return outcome(RELATION.id, "undecided", "the resumed launch recorded no step")
    found = equal_steps(RELATION, base, resumed, first=FIRST)
    if found["status"] == "broken":
        found["message"] += f": {_lost(base, resumed)}"
        return found
    return holds(RELATION, found["message"]) if found["status"] == "holds" else found


def _apart(base: Recorded, resumed: Recorded, *, sampled: bool) -> int | None:
    """Return the first step after the resume with other rows."""
    before = rows_of(base, sampled=sampled)[SAVED_AT:]
    after = rows_of(resumed, sampled=sampled)
    for step, (was, now) in enumerate(zip(before, after, strict=False), start=FIRST):
        if was and now and sorted(was) != sorted(now):
            return step
    return None


def _lost(base: Recorded, resumed: Recorded) -> str:
    """Return what the checkpoint seems to lack; the rows are equal.

    A lost schedule shows in the rates before it shows in the losses. Lost moments of an optimizer
    show one step late: the first resumed loss and gradient do not depend on them.
    """
    loss, gradient, rate = (
        first_apart(base, resumed, name, FIRST)
        for name in ("losses", "grad_norms", "learning_rates")
    )
    if rate is not None and rate <= (loss or rate):
        return "the scheduler was not restored"
    if loss == FIRST:
        return "random states (dropout) or some parameters were not restored"
    if gradient == FIRST:
        return "the loss is equal, so a gradient scaler or accumulated gradients were not restored"
    return "the state of the optimizer was not restored"
