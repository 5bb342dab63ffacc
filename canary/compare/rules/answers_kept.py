"""Answers that a template keeps."""

from __future__ import annotations

from canary.compare.rules.rule import Answer, Rule, answer, only_for
from canary.record.types import RunRecord


def judge(record: RunRecord) -> Answer:
    """A template may leave out a part of an answer, such as its reasoning."""
    texts = record.exact.get("facts", {}).get("texts", {})
    asked = texts.get("answers", 0)
    if not asked:
        return only_for("data sets that keep messages beside input_ids")
    dropped = texts.get("answers_dropped", 0)
    words = f"{asked} rows have the whole text of their last answer"
    if dropped:
        words = f"{dropped} of {asked} rows lack the beginning of their last answer"
    return answer(
        bool(dropped),
        words,
        size=dropped,
        value=dropped,
        doubt="the chat template leaves it out: is that on purpose?",
    )


RULE = Rule(
    "answers_kept",
    "rows have the whole text of their last answer",
    "a data set that keeps messages beside input_ids, and rows that are not cut",
    "render one conversation with apply_chat_template(..., tokenize=False) and read it",
    "https://github.com/allenai/open-instruct/issues/1804",
    judge,
)
