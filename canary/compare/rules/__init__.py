"""Rules: what holds in every sound training, asked of the record of one run. One file a rule."""

from __future__ import annotations

from canary.compare.rules import (
    advantages_scaled,
    advantages_sum,
    bos,
    finite,
    first_loss,
    frozen,
    labels_contain_eos,
    learning_rate,
    not_negative,
    ranks_agree,
    ratio_at_start,
    reward_varies,
    rewards_add_up,
    sampled_ids,
    trainable_changed,
)
from canary.compare.rules.rule import Answer, Rule
from canary.record.types import RunRecord

RULES: tuple[Rule, ...] = (
    finite.RULE,
    not_negative.RULE,
    *first_loss.RULES,
    ratio_at_start.RULE,
    advantages_sum.RULE,
    advantages_scaled.RULE,
    reward_varies.RULE,
    rewards_add_up.RULE,
    labels_contain_eos.RULE,
    bos.RULE,
    trainable_changed.RULE,
    frozen.RULE,
    learning_rate.RULE,
    sampled_ids.RULE,
    ranks_agree.RULE,
)
"""All rules, in the order of the answer."""


def answers(record: RunRecord) -> list[tuple[Rule, Answer]]:
    """Ask all rules about a run."""
    return [(rule, rule.judge(record)) for rule in RULES]
