"""The sum of advantages."""

from __future__ import annotations

from canary.compare.exact.inputs_stages import is_rollout
from canary.compare.rules.facts import advantages_of_tokens, farthest, no_whole_groups
from canary.compare.rules.rule import Answer, Rule, answer, not_asked, only_for
from canary.record.types import RunRecord

TOLERANCE = 1e-3
"""Of the mean advantage; scaled advantages have size 1."""


def judge(record: RunRecord) -> Answer:
    """Advantages are deviations from their group's mean (Shao et al. 2024, section 4.1), or from
    the mean of the group's other members (RLOO: Ahmadian et al. 2024, eq. 7). PPO whitens them
    over the tokens of a rollout."""
    whitened = advantages_of_tokens(record).get("mean", [])
    if whitened:
        return _judged(farthest(whitened, 0.0), "step's tokens")
    if not is_rollout(record):
        return only_for("online RL")
    if reason := no_whole_groups(record):
        return not_asked(reason)
    worst = 0.0
    for step in record.exact["batches"]:
        values = [v for micro in step for v in micro["advantages"] if v is not None]
        mean = sum(values) / len(values) if values else 0.0
        worst = mean if not abs(mean) <= abs(worst) else worst
    return _judged(worst, "step")


def _judged(worst: float, of: str) -> Answer:
    words = f"mean advantage of a {of} is up to {worst:.2g}, expected 0"
    return answer(not abs(worst) <= TOLERANCE, words, size=worst, value=worst)


RULE = Rule(
    "advantages_sum_to_zero",
    "advantages sum to zero",
    "a step that holds whole groups, or PPO's whitened advantages",
    "subtract the mean of each prompt's own completions, and order rows by prompt",
    "https://arxiv.org/abs/2402.03300",
    judge,
)
