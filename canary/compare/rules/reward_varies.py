"""Rewards that differ."""

from __future__ import annotations

import math

from canary.compare.exact.inputs_stages import is_rollout
from canary.compare.rules.facts import logged
from canary.compare.rules.rule import Answer, Rule, answer, not_asked, only_for
from canary.record.types import RunRecord


def judge(record: RunRecord) -> Answer:
    """A reward that never varies teaches nothing."""
    if not is_rollout(record):
        return only_for("online RL")
    found = record.rl.get("reward_std")
    rewards = logged(record).get("reward") or []
    bad = sum(value is not None and not math.isfinite(value) for value in rewards)
    if bad:
        words = f"the reward is not finite in {bad} of {len(rewards)} steps"
        return answer(True, words, size=bad)
    looked = [value for value in logged(record).get("reward_std", ()) if value is not None]
    largest = found.max if found is not None and found.count else max(looked, default=None)
    if largest is None:
        return not_asked("no rewards were recorded")
    words = f"largest standard deviation of rewards is {largest:.3g}"
    return answer(not largest > 0, words, size=largest, value=largest)


RULE = Rule(
    "reward_varies",
    "the reward varies",
    "online RL with logged rewards",
    "call each reward function on a few completions by hand: is its parser wrong?",
    "https://github.com/OpenRLHF/OpenRLHF/issues/1219",
    judge,
)
