"""Reward functions that tell completions apart."""

from __future__ import annotations

import math
import re

from canary.compare.exact.inputs_stages import is_rollout
from canary.compare.rules.facts import logged
from canary.compare.rules.rule import Answer, Rule, answer, not_asked, only_for
from canary.record.types import RunRecord

MEAN = re.compile(r"^rewards/(.+)/mean$")
LEAST_STEPS = 3
RARE = "its reward may be rare, or reached by all completions"


def judge(record: RunRecord) -> Answer:
    """A function with one value for all completions teaches nothing; others hide it in the sum."""
    if not is_rollout(record):
        return only_for("online RL")
    metrics = logged(record)
    found = {match[1]: name for name in metrics if (match := MEAN.match(name))}
    if len(found) < 2:
        return only_for("several reward functions with logged rewards")
    constant: dict[str, float] = {}
    steps = 0
    for function, name in sorted(found.items()):
        stds = [v for v in metrics.get(f"rewards/{function}/std", ()) if v is not None]
        means = [v for v in metrics[name] if v is not None]
        steps = max(steps, len(means))
        if len(stds) == len(means) >= LEAST_STEPS and not any(stds) and len({*means}) == 1:
            constant[function] = means[0]
    if steps < LEAST_STEPS:
        return not_asked(f"rewards of {steps} steps say little: ask {LEAST_STEPS} steps at least")
    if len(constant) == len(found) or any(not math.isfinite(one) for one in constant.values()):
        return not_asked("no reward function varies")
    words, place = f"{len(found)} reward functions give several values", ""
    if constant:
        place, value = next(iter(constant.items()))
        words = f"{place} gives {value:.3g} to all completions of {steps} steps, and others vary"
    broken = bool(constant)
    return answer(broken, words, size=len(constant), items=constant, place=place, doubt=RARE)


RULE = Rule(
    "each_reward_varies",
    "each reward function gives several values",
    "several reward functions whose rewards are logged",
    "call the function by hand on a completion that should be rewarded: is its parser wrong?",
    "https://github.com/unslothai/unsloth/issues/1761",
    judge,
)
