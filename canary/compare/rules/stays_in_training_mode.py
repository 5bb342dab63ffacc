"""Training mode."""

from __future__ import annotations

from canary.compare.rules.facts import NO_UPDATES, counted, updates_of
from canary.compare.rules.rule import Answer, Rule, answer, not_asked, only_for
from canary.record.types import RunRecord


def judge(record: RunRecord) -> Answer:
    """A model that begins in training mode is in it in every update.

    A part in evaluation mode is a choice, such as frozen statistics of batch norm: only a model
    without any module in training mode counts.
    """
    seen = updates_of(record)
    if not seen or not seen.get("modes"):
        return not_asked(NO_UPDATES)
    modes = seen["modes"]
    if len(modes) < 2:
        return not_asked("the look has one update")
    if not modes[0]:
        return not_asked("the model trains in evaluation mode from the start")
    if not seen.get("noisy_modules"):
        return only_for("models with dropout or batch norm")
    if all(modes):
        return answer(False, f"the model was in training mode in all {len(modes)} updates")
    first = modes.index(False) + 1
    back = any(modes[first:])
    modules = counted(seen["noisy_modules"], "module")
    return answer(
        True,
        f"from update {first} on, the whole model trains in evaluation mode: dropout or batch norm "
        f"of {modules} is off",
        size=modes.count(False),
        place=f"update {first}",
        doubt="later updates are in training mode again" if back else "",
    )


RULE = Rule(
    "stays_in_training_mode",
    "a model that begins in training mode stays in it",
    "dropout or batch norm, and a first update in training mode",
    "call model.train() after each evaluation",
    "https://arxiv.org/abs/2506.14813",
    judge,
)
