"""The end of an answer."""

from __future__ import annotations

from canary.relations.relation import Relation

RELATION = Relation(
    "eos_labels",
    "what is trained",
    "the labels hold EOS",
    "EOS is masked like padding, or answers have none: the model never learns to stop",
    "https://github.com/huggingface/trl/issues/1623",
    moment=None,
    invariants=("labels_contain_eos",),
)
