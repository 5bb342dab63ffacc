"""Ends of conversations."""

from __future__ import annotations

from canary.compare.rules.rule import Answer, Rule, answer, only_for
from canary.record.types import RunRecord


def judge(record: RunRecord) -> Answer:
    """A row that is trained on ends with an answer, not with the start of another one."""
    texts = record.exact.get("facts", {}).get("texts", {})
    read, opened = texts.get("rows_read", 0), texts.get("rows_open", 0)
    if not read:
        return only_for("data sets of token ids beside a chat template")
    words = f"{opened} of {read} rows end with the start of an answer, and none follows"
    doubt = "" if 2 * opened > read else "are these cut?"
    return answer(bool(opened), words, size=opened, value=opened, doubt=doubt)


RULE = Rule(
    "closed_turns",
    "conversations end with an answer",
    "a data set with input_ids, and a chat template with a start of answers",
    "render what is trained on without add_generation_prompt=True",
    "https://github.com/Goekdeniz-Guelmez/mlx-lm-lora/pull/83",
    judge,
)
