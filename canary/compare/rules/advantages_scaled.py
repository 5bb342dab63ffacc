"""The size of advantages."""

from __future__ import annotations

import math

from canary.compare.exact.inputs_stages import is_rollout
from canary.compare.rules.facts import (
    advantages_of_tokens,
    argument,
    farthest,
    logged,
    no_whole_groups,
    trainer_of,
    whole_number,
)
from canary.compare.rules.rule import Answer, Rule, answer, not_asked, only_for
from canary.record.types import RunRecord

TOLERANCE = 0.1
LEAST_SPREAD = 1e-3
"""Smallest standard deviation of scores to judge: with less, whitening can amplify rounding."""
LEAST_GROUP_SPREAD = 0.02
"""Mean standard deviation of a group's rewards. Below, the 1e-4 that trl adds before it divides by
it counts: a deviation of 0.002 gives a variance of 0.91."""


def judge(record: RunRecord) -> Answer:
    """Advantages have variance 1 per group, or per step for PPO: the squares of a group with
    unequal rewards sum to its size minus 1."""
    if advantages_of_tokens(record).get("rms"):
        return _whitened(record)
    if not is_rollout(record):
        return only_for("online RL")
    if reason := no_whole_groups(record) or _not_scaled(record):
        return not_asked(reason)
    saturated = logged(record).get("frac_reward_zero_std")
    size = whole_number(record, "num_generations")
    if not saturated or not size:
        return not_asked("the share of groups with equal rewards was not recorded")
    ratios = []
    spreads = [*logged(record).get("reward_std", ()), *[None] * len(saturated)]
    for step, share, spread in zip(record.exact["batches"], saturated, spreads, strict=False):
        if spread is not None and spread < LEAST_GROUP_SPREAD:
            continue
        values = [v for micro in step for v in micro["advantages"] if v is not None]
        expected = (len(values) / size) * (1 - (share or 0)) * (size - 1)
        if expected > 0.5:
            ratios.append(sum(v * v for v in values) / expected)
    if not ratios:
        return not_asked("the rewards are equal in every group")
    worst = farthest(ratios, 1.0)
    return _judged(worst, f"variance of advantages in a group is {worst:.3g}, expected 1")


def _not_scaled(record: RunRecord) -> str:
    row = trainer_of(record)
    if row.advantages == "centred":
        return f"{row.title} does not scale by group"
    if argument(record, "scale_rewards", "group") not in ("group", True, None):
        return "scale_rewards is not by group"
    return "dr_grpo does not scale" if argument(record, "loss_type", None) == "dr_grpo" else ""


def _whitened(record: RunRecord) -> Answer:
    """Judge the standard deviation (with Bessel's correction) of steps whose scores vary."""
    advantages = advantages_of_tokens(record)
    counts, squares = advantages.get("count", []), advantages.get("rms", [])
    spreads = [spread or 0.0 for spread in logged(record).get("reward_std", ())]
    scaled = [
        rms * math.sqrt(count / (count - 1))
        for rms, count, spread in zip(squares, counts, spreads, strict=False)
        if spread > LEAST_SPREAD and count > 1
    ]
    if not scaled:
        return not_asked("the scores vary in no step")
    worst = farthest(scaled, 1.0)
    words = f"standard deviation of a step's advantages is {worst:.3g}, expected 1"
    return _judged(worst, words)


def _judged(worst: float, words: str) -> Answer:
    return answer(not abs(worst - 1) <= TOLERANCE, words, size=worst - 1, value=worst)


RULE = Rule(
    "advantages_scaled",
    "advantages have variance 1",
    "a trainer that scales by group, or PPO's whitened advantages",
    "divide by the standard deviation of the same rows whose mean is subtracted",
    "https://arxiv.org/abs/2402.03300",
    judge,
)
