"""Answers that are cut before their end."""

from __future__ import annotations

from canary.compare.exact.inputs_stages import is_rollout
from canary.compare.rules.facts import argument, micro_batches
from canary.compare.rules.rule import Answer, Rule, answer, only_for
from canary.record.types import RunRecord

MOST = 0.5
"""Share of answers that may be cut."""
CUT = "is the end of answers not needed?"


def judge(record: RunRecord) -> Answer:
    """A model whose answers are cut hardly learns to stop."""
    if is_rollout(record):
        return only_for("answers that are given")
    settings = record.exact.get("evidence", {}).get("settings", {})
    limit = argument(record, "max_length", settings.get("args.max_length"))
    if not isinstance(limit, int):
        return only_for("trainers with max_length")
    if argument(record, "packing", settings.get("args.packing")):
        return only_for("rows that are not packed")
    micro = [m for m in micro_batches(record) if m.get("learned_rows")]
    if not micro or all(m.get("label_tokens") == m.get("input_tokens") for m in micro):
        return only_for("rows whose prompts are masked")
    rows = sum(m["learned_rows"] for m in micro)
    full = [
        m
        for m in micro
        if max((s[-1] for s in m.get("shapes", {}).values() if s), default=0) >= limit
    ]
    cut = sum(m.get("rows_cut", 0) for m in full)
    words = f"{cut} of {rows} answers are cut at {limit} tokens, before their EOS"
    return answer(
        cut > MOST * rows, words, size=cut, value=cut, doubt="is the end of answers not needed?"
    )


RULE = Rule(
    "answers_end",
    "most answers end before max_length",
    "answers whose prompts are masked",
    "raise max_length, or leave out rows that are longer",
    "https://github.com/huggingface/trl/issues/1623",
    judge,
)
