"""The first loss of preference trainers, where policy and reference are equal."""

from __future__ import annotations

import functools

from canary.compare.exact.tolerances import arithmetic_of
from canary.compare.rules.facts import arguments, overridden_loss, starts_at_reference, trainer_of
from canary.compare.rules.rule import Answer, Rule, answer, not_asked, only_for
from canary.config.trainers import TRAINERS, TrainerRow
from canary.record.types import RunRecord

TOLERANCE = {"float32": 1e-5, "bfloat16": 1e-2, "float16": 1e-3}


def rounding(record: RunRecord) -> float:
    """Return how far rounding alone may move a loss."""
    return TOLERANCE.get(arithmetic_of(record), 1e-5)


def judge(row: TrainerRow, record: RunRecord) -> Answer:
    """Compare the first loss with its known value."""
    if trainer_of(record) is not row:
        return only_for(row.title)
    expected = row.first_loss
    assert expected is not None
    other = expected.unless(arguments(record))
    if other:
        return not_asked(other)
    if not starts_at_reference(record):
        return not_asked("policy and reference model differ at the start")
    if record.config.get("lora_dropout"):
        return not_asked("dropout makes policy and reference model differ")
    loss = record.exact.get("first_loss", {}).get("loss")
    if loss is None:
        return not_asked("the first loss was not recorded")
    off = loss - expected.value
    broken = not abs(off) <= rounding(record)
    words = f"first loss {loss:.6f}, {expected.words}"
    if broken:
        words += f": policy and reference model differ before training{expected.why}"
    return answer(broken, words, size=off, value=loss, doubt=overridden_loss(record))


RULES = tuple(
    Rule(
        f"{name}_first_loss",
        f"the first loss is {row.first_loss.words.removesuffix(' expected').split(' is ')[0]}",
        "policy and reference are equal at the start, without dropout",
        "compare policy and reference before the first update: other weights, dropout, or another "
        "dtype",
        "https://arxiv.org/abs/2305.18290",
        functools.partial(judge, row),
    )
    for name, row in TRAINERS.items()
    if row.first_loss is not None
)
