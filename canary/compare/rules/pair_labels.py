"""Labels of preference pairs."""

from __future__ import annotations

from canary.compare.rules.facts import micro_batches
from canary.compare.rules.rule import Answer, Rule, answer, only_for
from canary.record.types import RunRecord

PER_TOKEN = ("orpo", "cpo")
"""Trainers whose log-probabilities of an answer are divided by its labels."""


def judge(record: RunRecord) -> Answer:
    """The labels of a pair leave its prompt out.

    In a sum of log-probabilities, as in DPO, the prompt of both sides cancels. A mean does not.
    """
    micro = [one for one in micro_batches(record) if one.get("prompt_tokens")]
    if not micro:
        return only_for("pairs with prompts beside them, and labels")
    of = sum(one["prompt_tokens"] for one in micro)
    count = sum(one.get("prompt_labels", 0) for one in micro)
    mean = record.config.get("training_type") in PER_TOKEN
    return answer(
        bool(count),
        f"{count} of {of} prompt tokens of pairs are in their labels",
        size=count,
        value=count,
        doubt="" if mean else "do the prompts of both sides cancel in the loss?",
    )


RULE = Rule(
    "pair_labels",
    "the labels of a preference pair leave its prompt out",
    "batches with prompts, pairs and labels; broken for ORPO and CPO, whose scores are means",
    "mask the prompt's tokens in the labels with -100",
    "https://github.com/huggingface/trl/issues/1507",
    judge,
)
