"""Which parameters decay."""

from __future__ import annotations

from canary.compare.rules.facts import NO_UPDATES, shown, updates_of
from canary.compare.rules.rule import Answer, Rule, answer, not_asked, only_for
from canary.record.types import RunRecord


def judge(record: RunRecord) -> Answer:
    """A group without weight decay that holds biases or norms holds all of them. Always a note."""
    seen = updates_of(record)
    if not seen:
        return not_asked(NO_UPDATES)
    for one in seen.get("optimizers", []):
        decaying, without = one.get("decaying_vectors", 0), one.get("vectors_without_decay", 0)
        if without and decaying:
            names = one.get("decaying_names", [])
            return answer(
                True,
                f"{decaying} biases and norms have weight decay, {without} have none "
                f"({shown(names, decaying)})",
                size=decaying,
                items=names,
                place=shown(names, 1),
                doubt="do names that should leave them out not match?",
            )
        if without:
            return answer(False, f"none of {without} biases and norms has weight decay")
    return only_for("optimizers that leave biases or norms out of weight decay")


RULE = Rule(
    "decay_groups",
    "if a group without weight decay holds biases or norms, it holds all of them",
    "groups with and without weight decay",
    "match biases and norms by dimension (ndim < 2), not by name",
    "https://github.com/huggingface/transformers/pull/35927",
    judge,
)
