"""Embeddings of new tokens."""

from __future__ import annotations

from canary.compare.rules.rule import Answer, Rule, answer, only_for
from canary.record.types import RunRecord


def judge(record: RunRecord) -> Answer:
    """The embeddings of added tokens are made without any knowledge, so they must train, or be set
    by hand."""
    seen = record.exact.get("facts", {}).get("texts", {}).get("new_tokens")
    if not seen or not seen["rows_with"]:
        return only_for("rows with tokens that resize_token_embeddings added")
    words = f"{seen['rows_with']} of {seen['rows']} rows have tokens from {seen['first']} on"
    if not seen["frozen"]:
        return answer(False, f"{words}, whose embeddings train or were set")
    return answer(
        True,
        f"{words}: their embeddings were added with values of no meaning and are frozen",
        size=seen["rows_with"],
        value=seen["rows_with"],
        place=f"token {seen['first']}",
    )


RULE = Rule(
    "new_tokens_train",
    "embeddings of added tokens train",
    "a command that calls resize_token_embeddings, and a data set with input_ids",
    "name the embeddings and the head in modules_to_save, or the tokens in trainable_token_indices",
    "https://huggingface.co/docs/peft/developer_guides/lora",
    judge,
)
