"""Save, load and go on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from canary.relations.relation import Outcome, Relation, broken, holds, outcome
from canary.relations.trajectory import Recorded, equal_steps, first_apart, rows_of, series

NO_CHECKPOINT = "torch and safetensors saved no checkpoint before the last update"
SAVE_AT = 4
"""Two or four updates may share a rollout, and trl does not save a rollout."""
RELATION = Relation(
    "resume",
    "start and end",
    "a resumed training equals the uninterrupted one bit for bit",
    "the checkpoint lacks the optimizer, the scheduler, random states or the place in the data",
    "https://github.com/huggingface/transformers/issues/26413",
    moment=None,
    variations=(
        {"name": "saves after update 4", "save_at": SAVE_AT},
        {"name": "resumes at update 4", "resume": True},
    ),
    of_loop=(
        {"name": "is killed after its first checkpoint", "killed": True},
        {"name": "is started again", "restarted": True},
    ),
)


def judge(base: Recorded, saved: Recorded, resumed: Recorded) -> Outcome:
    """Compare the uninterrupted launch with one that saves, and both with the resumed one."""
    varied: Mapping[str, Any] = saved.get("varied", {})
    at: int = varied.get("saved_at", SAVE_AT)
    by_itself = "saved" in varied
    whole = equal_steps(RELATION, base, saved)
    if whole["status"] == "broken" and by_itself:
        words = f"two launches of the command differ before the checkpoint: {whole['message']}"
        return outcome(RELATION.id, "undecided", words, whole["place"])
    if whole["status"] == "broken":
        whole["message"] = f"saving a checkpoint already changes the training: {whole['message']}"
        return whole
    begins = _begins(base, resumed, at)
    if begins == 0:
        words = f"started again after the checkpoint of update {at}, the training begins anew"
        return outcome(RELATION.id, "not applicable", words)
    return _resumed(base, resumed, begins if by_itself and begins is not None else at)


def _begins(base: Recorded, resumed: Recorded, at: int) -> int | None:
    """Return how many updates a training had done that was started again: the checkpoint says
    `at`, but an older one may have been complete. None if its first step is none of those."""
    rows, losses = rows_of(resumed)[:1], series(resumed, "losses")[:1]
    done: int
    for done in (at, *range(at)):
        known = rows_of(base)[done : done + 1]
        again = not rows or not known or sorted(rows[0]) == sorted(known[0])
        known_losses = [*series(base, "losses")[done : done + 1]]
        if again and losses and losses[0] is not None and known_losses == [*losses]:
            return done
    return None


def _resumed(base: Recorded, resumed: Recorded, at: int) -> Outcome:
    """Compare the steps after the first `at` ones."""
    first = at + 1
    if (step := _apart(base, resumed, at, sampled=False)) is not None:
        words = "the rows differ after the resume: the position in the data was not restored"
        if step == first and _is_step_one(base, resumed):
            words = "the rows of update 1 come again: the position in the data was not restored"
        return broken(RELATION, words, f"update {step}")
    if (step := _apart(base, resumed, at, sampled=True)) is not None:
        words = "the same prompts have other completions after the resume"
        return outcome(RELATION.id, "undecided", words, f"update {step}")
    after = rows_of(resumed)
    if not after and not resumed.get("trajectory", {}).get("losses"):
        return outcome(RELATION.id, "undecided", "the resumed launch recorded no update")
    found = equal_steps(RELATION, base, resumed, first=first)
    if found["status"] == "broken":
        found["message"] += f": {_lost(base, resumed, first)}"
        return found
    return holds(RELATION, found["message"]) if found["status"] == "holds" else found


def _is_step_one(base: Recorded, resumed: Recorded) -> bool:
    before, after = rows_of(base, sampled=False)[:1], rows_of(resumed, sampled=False)[:1]
    return bool(before and after and sorted(before[0]) == sorted(after[0]))


def _apart(base: Recorded, resumed: Recorded, at: int, *, sampled: bool) -> int | None:
    """Return the first step after the resume with other rows."""
    before = rows_of(base, sampled=sampled)[at:]
    after = rows_of(resumed, sampled=sampled)
    for step, (was, now) in enumerate(zip(before, after, strict=False), start=at + 1):
        if was and now and sorted(was) != sorted(now):
            return step
    return None


def _lost(base: Recorded, resumed: Recorded, first: int) -> str:
    """Return what the checkpoint seems to lack; the rows are equal.

    A lost schedule shows in the rates before it shows in the losses. Lost moments of an optimizer
    show one step late: the first resumed loss and gradient do not depend on them.
    """
    loss, gradient, rate = (
        first_apart(base, resumed, name, first)
        for name in ("losses", "grad_norms", "learning_rates")
    )
    if rate is not None and rate <= (loss or rate):
        return "the scheduler, or the rate in the optimizer, was not restored"
    if loss == first:
        return "random states (dropout) or some parameters were not restored"
    if gradient == first:
        return "the loss is equal, so a gradient scaler or accumulated gradients were not restored"
    return "the state of the optimizer was not restored"
