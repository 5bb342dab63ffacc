"""What the chat template gives."""

from __future__ import annotations

from canary.relations.relation import Relation

RELATION = Relation(
    "chat_template",
    "what is trained",
    "a sequence has at most one BOS",
    "a text to which the chat template added BOS was tokenized with another BOS",
    "https://github.com/huggingface/alignment-handbook/issues/127",
    moment=None,
    invariants=("at_most_one_bos",),
)
