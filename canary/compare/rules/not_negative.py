"""The sign of a loss."""

from __future__ import annotations

from canary.compare.rules.facts import arguments, overridden_loss, trainer_of
from canary.compare.rules.first_loss import rounding
from canary.compare.rules.rule import Answer, Rule, answer, not_asked, only_for
from canary.record.types import RunRecord


def judge(record: RunRecord) -> Answer:
    """A negative log-likelihood is never below zero, nor is a loss of such terms."""
    if not trainer_of(record).never_negative(arguments(record)):
        return only_for("losses that cannot be negative")
    losses = [*record.exact.get("trajectory", {}).get("losses", []), *record.stability.loss_values]
    if all(value is None for value in losses):
        return not_asked("no loss was recorded")
    negative = [v for v in losses if v is not None and v < -rounding(record)]
    if not negative:
        return answer(False, "no loss is negative")
    words = f"negative losses: {len(negative)}, but this loss cannot be negative"
    doubt = overridden_loss(record)
    return answer(True, words, size=len(negative), items=("loss",), doubt=doubt)


RULE = Rule(
    "loss_not_negative",
    "the loss is not negative",
    "a trainer whose loss is a sum of negative log-likelihoods",
    "look for a sign, or for log-probabilities above 0, in what computes the loss",
    "",
    judge,
)
