"""The ids that were sampled are those that are trained on."""

from __future__ import annotations

from canary.compare.exact.inputs_stages import is_rollout
from canary.compare.rules.facts import micro_batches
from canary.compare.rules.rule import Answer, Rule, answer, not_asked, only_for
from canary.record.types import RunRecord


def judge(record: RunRecord) -> Answer:
    """Text that is decoded and tokenized again can get other ids, and then the policy ratio means
    nothing."""
    if not is_rollout(record):
        return only_for("online RL")
    counted = [micro["not_sampled"] for micro in micro_batches(record) if "not_sampled" in micro]
    if not counted:
        return not_asked("the sampled ids were not seen (separate engine, or tools)")
    foreign = sum(counted)
    words = "all trained completions were sampled"
    if foreign:
        words = f"{foreign} trained completions were never sampled"
    return answer(foreign > 0, words, size=foreign, value=foreign)


RULE = Rule(
    "sampled_ids_trained",
    "the trained ids are the sampled ids",
    "a sampler in the training process",
    "train on the ids of the sampler; do not tokenize its text again",
    "",
    judge,
)
