"""Invariants of online RL: ratio and KL at the start, advantages, rewards."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from canary.compare.exact.inputs_stages import is_rollout
from canary.compare.exact.tolerances import arithmetic_of
from canary.compare.invariants.parts import (
    Invariant,
    argument,
    micro_batches,
    not_for,
    result,
    skip,
    starts_at_reference,
    trainer_of,
    whole_number,
)
from canary.record.exact import Series, Signal
from canary.record.types import RunRecord

ADVANTAGE_SUM_TOLERANCE = 1e-3
"""Of the mean advantage; scaled advantages have size 1."""
ADVANTAGE_SCALE_TOLERANCE = 0.1
KL_AT_START = 1e-5
RATIO_TOLERANCE = {"float32": 1e-4, "bfloat16": 5e-2, "float16": 1e-2}
"""Of the policy ratio from 1 before the first update: log-probabilities of equal parameters differ
only by the order of additions."""
LEAST_SPREAD = 1e-3
"""Smallest standard deviation of scores to judge: with less, whitening can amplify rounding."""
REWARD_SUM_TOLERANCE = 1e-4
"""Of the mean reward of a completion, on a scale of at least 1."""


def _metrics(record: RunRecord) -> dict[str, Series]:
    """Return the metrics that the trainer logged in the look."""
    return record.exact.get("trajectory", {}).get("rl", {})


def starts_at_ratio_one(record: RunRecord) -> Invariant:
    """Online RL starts with nothing clipped and KL 0.

    With a recorded `ratio_deviation`, the first update of every step must start at ratio 1."""
    name = "starts_at_ratio_one"
    if not is_rollout(record):
        return not_for(name, "online RL")
    rl = _metrics(record)
    if any(value is not None for value in rl.get("ratio_deviation", ())):
        return _every_step_starts_at_one(record, rl)
    clipped = [v[0] for k, v in rl.items() if k.startswith("clip_ratio") and v and v[0] is not None]
    kl = (rl.get("kl") or [None])[0]
    if not clipped and kl is None:
        return skip(name, "neither clip ratio nor KL was recorded")
    off = [v for v in clipped if v != 0]
    if kl is not None and starts_at_reference(record) and not abs(kl) <= KL_AT_START:
        return result(name, True, _kl_words(kl), float(kl), kl)
    words = f"{max(off, default=0.0):.3g} of the policy ratios are clipped in step 1"
    return result(name, bool(off), words, len(off))


def _kl_words(kl: float) -> str:
    return f"KL is {kl:.3g} before the first update, expected 0"


def _every_step_starts_at_one(record: RunRecord, rl: Mapping[str, Series]) -> Invariant:
    """PPO starts each step's updates at the policy that sampled (Schulman et al. 2017, eq. 6), and
    its training at the reference model."""
    name = "starts_at_ratio_one"
    deviations = [float(v) for v in rl["ratio_deviation"] if v is not None]
    worst = max(deviations, key=lambda value: value if value == value else math.inf)
    allowed = RATIO_TOLERANCE.get(arithmetic_of(record), 1e-4)
    kl = (rl.get("kl") or [None])[0]
    words = f"policy ratios differ from 1 by up to {worst:.3g}"
    if not worst <= allowed:
        return result(name, True, f"{words} before the first update of a step", worst, worst)
    if kl is not None and starts_at_reference(record) and not abs(kl) <= KL_AT_START:
        return result(name, True, _kl_words(kl), float(kl), kl)
    return result(name, False, words, worst, worst)


def _advantages_of_tokens(record: RunRecord) -> Signal:
    """Return PPO's whitened advantages; empty if not recorded."""
    return record.exact.get("rollout", {}).get("signals", {}).get("advantages", {})


def _farthest(values: Sequence[float], expected: float) -> float:
    """Return the value farthest from the expected one; NaN counts as farthest."""
    return max(values, key=lambda v: abs(v - expected) if v == v else math.inf)


def _whole_groups(record: RunRecord) -> str:
    """Return why a step's advantages are not whole groups; empty if they are."""
    if trainer_of(record).advantages == "whitened":
        return f"{trainer_of(record).title} has no groups, and its advantages were not recorded"
    for key in ("steps_per_generation", "num_iterations", "generation_batch_size"):
        if argument(record, key, None) not in (None, 1):
            return f"{key} is set: a step may not hold whole groups"
    micro = micro_batches(record)
    if not micro or any("advantages" not in m for m in micro):
        return "advantages were not recorded"
    return ""


def advantages_sum_to_zero(record: RunRecord) -> Invariant:
    """Advantages are deviations from their group's mean (Shao et al. 2024, section 4.1), or from
    the mean of the group's other members (RLOO: Ahmadian et al. 2024, eq. 7). PPO whitens them
    over the tokens of a rollout."""
    name = "advantages_sum_to_zero"
    whitened = _advantages_of_tokens(record).get("mean", [])
    if whitened:
        worst = _farthest(whitened, 0.0)
        broken = not abs(worst) <= ADVANTAGE_SUM_TOLERANCE
        words = f"mean advantage of a step's tokens is up to {worst:.2g}, expected 0"
        return result(name, broken, words, worst, worst)
    if not is_rollout(record):
        return not_for(name, "online RL")
    reason = _whole_groups(record)
    if reason:
        return skip(name, reason)
    worst = 0.0
    for step in record.exact["batches"]:
        values = [v for micro in step for v in micro["advantages"] if v is not None]
        mean = sum(values) / len(values) if values else 0.0
        worst = mean if not abs(mean) <= abs(worst) else worst
    broken = not abs(worst) <= ADVANTAGE_SUM_TOLERANCE
    words = f"mean advantage of a step is up to {worst:.2g}, expected 0"
    return result(name, broken, words, worst, worst)


LEAST_GROUP_SPREAD = 0.02
"""Mean standard deviation of a group's rewards. Below, the 1e-4 that trl adds before it divides by
it counts: a deviation of 0.002 gives a variance of 0.91."""


def advantages_scaled(record: RunRecord) -> Invariant:
    """Advantages have variance 1 per group, or per step for PPO: the squares of a group with
    unequal rewards sum to its size minus 1."""
    name = "advantages_scaled"
    if _advantages_of_tokens(record).get("rms"):
        return _whitened_to_one(record, name)
    if not is_rollout(record):
        return not_for(name, "online RL")
    reason = _whole_groups(record)
    row = trainer_of(record)
    if not reason and row.advantages == "centred":
        reason = f"{row.title} does not scale by group"
    if not reason and argument(record, "scale_rewards", "group") not in ("group", True, None):
        reason = "scale_rewards is not by group"
    if not reason and argument(record, "loss_type", None) == "dr_grpo":
        reason = "dr_grpo does not scale"
    saturated = _metrics(record).get("frac_reward_zero_std")
    size = whole_number(record, "num_generations")
    if reason:
        return skip(name, reason)
    if not saturated or not size:
        return skip(name, "the share of groups with equal rewards was not recorded")
    ratios = []
    spreads = [*_metrics(record).get("reward_std", ()), *[None] * len(saturated)]
    for step, share, spread in zip(record.exact["batches"], saturated, spreads, strict=False):
        if spread is not None and spread < LEAST_GROUP_SPREAD:
            continue
        values = [v for micro in step for v in micro["advantages"] if v is not None]
        expected = (len(values) / size) * (1 - (share or 0)) * (size - 1)
        if expected > 0.5:
            ratios.append(sum(v * v for v in values) / expected)
    if not ratios:
        return skip(name, "the rewards are equal in every group")
    worst = max(ratios, key=lambda r: abs(r - 1))
    broken = not abs(worst - 1) <= ADVANTAGE_SCALE_TOLERANCE
    words = f"variance of advantages in a group is {worst:.3g}, expected 1"
    return result(name, broken, words, worst - 1, worst)


def _whitened_to_one(record: RunRecord, name: str) -> Invariant:
    """Judge the standard deviation (with Bessel's correction) of steps whose scores vary."""
    advantages = _advantages_of_tokens(record)
    counts, squares = advantages.get("count", []), advantages.get("rms", [])
    spreads = [spread or 0.0 for spread in _metrics(record).get("reward_std", ())]
    scaled = [
        rms * math.sqrt(count / (count - 1))
        for rms, count, spread in zip(squares, counts, spreads, strict=False)
        if spread > LEAST_SPREAD and count > 1
    ]
    if not scaled:
        return skip(name, "the scores vary in no step")
    worst = _farthest(scaled, 1.0)
    broken = not abs(worst - 1) <= ADVANTAGE_SCALE_TOLERANCE
    words = f"standard deviation of a step's advantages is {worst:.3g}, expected 1"
    return result(name, broken, words, worst - 1, worst)


def rewards_add_up(record: RunRecord) -> Invariant:
    """PPO's token rewards sum to the score minus the weighted KL of their completion (Ziegler et
    al. 2019, eq. 2)."""
    name = "rewards_add_up"
    if trainer_of(record).advantages != "whitened":
        return not_for(name, "PPO")
    if (record.config.get("ppo") or {}).get("whiten_rewards"):
        return skip(name, "whiten_rewards scales the rewards")
    means = record.exact.get("rollout", {}).get("signals", {}).get("rewards", {}).get("mean", [])
    rl = _metrics(record)
    keys = ("completion_length", *OF_A_COMPLETION)
    series: list[Series] = [[*means], *(rl.get(key, []) for key in keys)]
    if not all(series) or any(None in values for values in series):
        return skip(name, "rewards, scores or KL were not recorded")
    off, where = 0.0, 1
    for step, values in enumerate(zip(*series, strict=False), start=1):
        mean, length, score, weight, kl = (value or 0.0 for value in values)
        found = mean * length - (score - weight * kl)
        found /= max(1.0, abs(score))
        if not abs(found) <= abs(off):
            off, where = found, step
    broken = not abs(off) <= REWARD_SUM_TOLERANCE
    words = "token rewards sum to the score minus the KL of their completion"
    if broken:
        words = f"token rewards differ from score minus KL by {off:.3g} in step {where}"
    return result(name, broken, words, off, off)


OF_A_COMPLETION = ("reward", "kl_coef", "kl_sequence")


def reward_varies(record: RunRecord) -> Invariant:
    """A reward that never varies teaches nothing."""
    name = "reward_varies"
    found = record.rl.get("reward_std")
    rewards = _metrics(record).get("reward") or []
    bad = sum(value is not None and not math.isfinite(value) for value in rewards)
    if is_rollout(record) and bad:
        words = f"the reward is not finite in {bad} of {len(rewards)} steps"
        return result(name, True, words, bad)
    if not is_rollout(record):
        return not_for(name, "online RL")
    looked = [value for value in _metrics(record).get("reward_std", ()) if value is not None]
    largest = found.max if found is not None and found.count else max(looked, default=None)
    if largest is None:
        return skip(name, "no rewards were recorded")
    words = f"largest standard deviation of rewards is {largest:.3g}"
    return result(name, not largest > 0, words, largest, largest)


def same_tokens_sampled_and_trained(record: RunRecord) -> Invariant:
    """The sampled ids enter the loss: text that is decoded and tokenized again can get other ids,
    and then the policy ratio means nothing."""
    name = "sampled_ids_trained"
    if not is_rollout(record):
        return not_for(name, "online RL")
    counted = [micro["not_sampled"] for micro in micro_batches(record) if "not_sampled" in micro]
    if not counted:
        return skip(name, "the sampled ids were not seen (separate engine, or tools)")
    foreign = sum(counted)
    words = "all trained completions were sampled"
    if foreign:
        words = f"{foreign} trained completions were never sampled"
    return result(name, foreign > 0, words, float(foreign), foreign)
