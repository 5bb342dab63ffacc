"""Token rewards of PPO."""

from __future__ import annotations

from canary.compare.rules.facts import logged, trainer_of
from canary.compare.rules.rule import Answer, Rule, answer, not_asked, only_for
from canary.record.exact import Series
from canary.record.types import RunRecord

TOLERANCE = 1e-4
"""Of the mean reward of a completion, on a scale of at least 1."""
OF_A_COMPLETION = ("reward", "kl_coef", "kl_sequence")


def judge(record: RunRecord) -> Answer:
    """Token rewards sum to the score minus the weighted KL of their completion (Ziegler et al.
    2019, eq. 2)."""
    if trainer_of(record).advantages != "whitened":
        return only_for("PPO")
    if (record.config.get("ppo") or {}).get("whiten_rewards"):
        return not_asked("whiten_rewards scales the rewards")
    means = record.exact.get("rollout", {}).get("signals", {}).get("rewards", {}).get("mean", [])
    rl = logged(record)
    keys = ("completion_length", *OF_A_COMPLETION)
    series: list[Series] = [[*means], *(rl.get(key, []) for key in keys)]
    if not all(series) or any(None in values for values in series):
        return not_asked("rewards, scores or KL were not recorded")
    off, where = 0.0, 1
    for step, values in enumerate(zip(*series, strict=False), start=1):
        mean, length, score, weight, kl = (value or 0.0 for value in values)
        found = mean * length - (score - weight * kl)
        found /= max(1.0, abs(score))
        if not abs(found) <= abs(off):
            off, where = found, step
    if abs(off) <= TOLERANCE:
        return answer(
            False, "token rewards sum to the score minus the KL of their completion", value=off
        )
    words = f"token rewards differ from score minus KL by {off:.3g} in step {where}"
    return answer(True, words, size=off, value=off, place=f"step {where}")


RULE = Rule(
    "rewards_add_up",
    "rewards sum to the score minus the KL",
    "PPO whose rewards are not whitened",
    "give the score to one token of each completion, and the KL to each token",
    "https://arxiv.org/abs/1909.08593",
    judge,
)
