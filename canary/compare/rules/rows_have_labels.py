"""Rows with labels."""

from __future__ import annotations

import math

from canary.compare.exact.inputs_stages import is_rollout
from canary.compare.rules.facts import micro_batches, special, without_tokens
from canary.compare.rules.rule import Answer, Rule, answer, not_asked, only_for
from canary.record.types import RunRecord


def judge(record: RunRecord) -> Answer:
    """A row whose labels are all -100 teaches nothing."""
    if is_rollout(record):
        return only_for("answers that are given")
    micro = [m for m in micro_batches(record) if "learned_rows" in m]
    rows = sum(m["learned_rows"] for m in micro)
    if not rows:
        return without_tokens(record, "no row of tokens with labels was seen")
    empty = [m.get("rows_without_labels", 0) for m in micro]
    if sum(empty) == rows:
        losses = record.exact.get("trajectory", {}).get("losses", [])
        if any(loss is not None and math.isfinite(loss) and loss != 0 for loss in losses):
            return not_asked("no row has labels, but the loss has a value: it reads something else")
        return answer(True, f"no label is left in any of {rows} rows", size=rows, value=rows)
    if special(record, "mask") is not None:
        return not_asked("the tokenizer has a mask token: a row may have no masked token by chance")
    words = f"{sum(empty)} of {rows} rows have no label"
    place = next((f"micro-batch {at}" for at, count in enumerate(empty, start=1) if count), "")
    doubt = "the other rows have labels: are these cut before their answers?"
    lost = sum(empty)
    return answer(bool(lost), words, size=lost, value=lost, place=place, doubt=doubt)


RULE = Rule(
    "rows_have_labels",
    "each row has a label",
    "a loss on tokens whose labels were seen",
    "raise max_length, or compare the template's mark of an answer with the ids of a row: where no "
    "answer is found, everything is masked",
    "https://github.com/huggingface/trl/issues/588",
    judge,
)
