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
"""Of an advantage, on average; scaled advantages are of size 1."""
ADVANTAGE_SCALE_TOLERANCE = 0.1
KL_AT_START = 1e-5
RATIO_TOLERANCE = {"float32": 1e-4, "bfloat16": 5e-2, "float16": 1e-2}
"""Of a ratio from 1 before its first update: log-probabilities of equal parameters differ by the
order of additions alone."""
LEAST_SPREAD = 1e-3
"""Of scores: with less, what is whitened may be rounding alone."""
REWARD_SUM_TOLERANCE = 1e-4
"""Of the mean reward of a completion, on a scale of at least 1."""


def _metrics(record: RunRecord) -> dict[str, Series]:
    """What the trainer told of the probe's steps."""
    return record.exact.get("trajectory", {}).get("rl", {})


def starts_at_ratio_one(record: RunRecord) -> Invariant:
    """The first step of online RL: nothing clipped, KL 0. Of a loop that tells of it, the ratios of
    each step's first update, and the KL of the first step."""
    name = "starts_at_ratio_one"
    if not is_rollout(record):
        return not_for(name, "online RL")
    rl = _metrics(record)
    if any(value is not None for value in rl.get("ratio_deviation", ())):
        return _starts_at_itself(record, rl)
    clipped = [v[0] for k, v in rl.items() if k.startswith("clip_ratio") and v and v[0] is not None]
    kl = (rl.get("kl") or [None])[0]
    if not clipped and kl is None:
        return skip(name, "neither clip ratio nor KL was recorded")
    off = [v for v in clipped if v != 0]
    if kl is not None and starts_at_reference(record) and not abs(kl) <= KL_AT_START:
        return result(name, True, f"KL {kl:.3g} before any update, 0 expected", float(kl), kl)
    return result(
        name, bool(off), f"clipped {max(off, default=0.0):.3g} of the ratios in step 1", len(off)
    )


def _starts_at_itself(record: RunRecord, rl: Mapping[str, Series]) -> Invariant:
    """PPO begins each step's updates at the policy that sampled (Schulman et al. 2017, eq. 6), and
    its training at the reference."""
    name = "starts_at_ratio_one"
    told = [float(v) for v in rl["ratio_deviation"] if v is not None]
    worst = max(told, key=lambda value: value if value == value else math.inf)
    allowed = RATIO_TOLERANCE.get(arithmetic_of(record), 1e-4)
    kl = (rl.get("kl") or [None])[0]
    if not worst <= allowed:
        words = f"ratios are off 1 by up to {worst:.3g} before their step's first update"
        return result(name, True, words, worst, worst)
    if kl is not None and starts_at_reference(record) and not abs(kl) <= KL_AT_START:
        return result(name, True, f"KL {kl:.3g} before any update, 0 expected", float(kl), kl)
    return result(name, False, f"ratios are off 1 by at most {worst:.3g}", worst, worst)


def _advantages_of_tokens(record: RunRecord) -> Signal:
    """The whitened advantages of PPO; empty where they were not recorded."""
    return record.exact.get("rollout", {}).get("signals", {}).get("advantages", {})


def _farthest(values: Sequence[float], expected: float) -> float:
    """The value farthest from what is expected; one that is no number is farther than any."""
    return max(values, key=lambda v: abs(v - expected) if v == v else math.inf)


def _whole_groups(record: RunRecord) -> str:
    """Why a step's advantages are not whole groups; empty where they are."""
    if trainer_of(record).advantages == "whitened":
        return f"{trainer_of(record).title} has no groups, and its advantages were not recorded"
    for key in ("steps_per_generation", "num_iterations", "generation_batch_size"):
        if argument(record, key, None) not in (None, 1):
            return f"{key} is set: a step is not a whole generation"
    micro = micro_batches(record)
    if not micro or any("advantages" not in m for m in micro):
        return "advantages were not recorded"
    return ""


def advantages_sum_to_zero(record: RunRecord) -> Invariant:
    """Advantages are deviations from their group's mean (Shao et al. 2024, section 4.1), or from
    the mean of the others in it (RLOO: Ahmadian et al. 2024, eq. 7). Those of PPO are whitened
    over the tokens of a rollout."""
    name = "advantages_sum_to_zero"
    whitened = _advantages_of_tokens(record).get("mean", [])
    if whitened:
        worst = _farthest(whitened, 0.0)
        broken = not abs(worst) <= ADVANTAGE_SUM_TOLERANCE
        words = f"mean advantage of a step's tokens at most {worst:.2g}, 0 expected"
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
    return result(name, broken, f"mean advantage of a step at most {worst:.2g}", worst, worst)


def advantages_scaled(record: RunRecord) -> Invariant:
    """Scaled by the group's standard deviation, the squares of an unsaturated group sum to its
    size less one; those of PPO have a mean square of 1."""
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
        return skip(name, "the share of saturated groups was not recorded")
    ratios = []
    for step, share in zip(record.exact["batches"], saturated, strict=False):
        values = [v for micro in step for v in micro["advantages"] if v is not None]
        expected = (len(values) / size) * (1 - (share or 0)) * (size - 1)
        if expected > 0.5:
            ratios.append(sum(v * v for v in values) / expected)
    if not ratios:
        return skip(name, "every group is saturated")
    worst = max(ratios, key=lambda r: abs(r - 1))
    broken = not abs(worst - 1) <= ADVANTAGE_SCALE_TOLERANCE
    return result(
        name, broken, f"variance of advantages in a group {worst:.3g}, 1 expected", worst - 1, worst
    )


def _whitened_to_one(record: RunRecord, name: str) -> Invariant:
    """The variance with Bessel's correction, of steps whose scores have a spread."""
    advantages = _advantages_of_tokens(record)
    counts, squares = advantages.get("count", []), advantages.get("rms", [])
    spreads = [spread or 0.0 for spread in _metrics(record).get("reward_std", ())]
    scaled = [
        rms * math.sqrt(count / (count - 1))
        for rms, count, spread in zip(squares, counts, spreads, strict=False)
        if spread > LEAST_SPREAD and count > 1
    ]
    if not scaled:
        return skip(name, "no step whose scores have a spread")
    worst = _farthest(scaled, 1.0)
    broken = not abs(worst - 1) <= ADVANTAGE_SCALE_TOLERANCE
    words = f"standard deviation of a step's advantages {worst:.3g}, 1 expected"
    return result(name, broken, words, worst - 1, worst)


def rewards_add_up(record: RunRecord) -> Invariant:
    """The rewards of PPO's tokens sum to the score, less the weighted KL, of their completion
    (Ziegler et al. 2019, eq. 2)."""
    name = "rewards_add_up"
    if trainer_of(record).advantages != "whitened":
        return not_for(name, "PPO")
    if (record.config.get("ppo") or {}).get("whiten_rewards"):
        return skip(name, "whiten_rewards scales them")
    told = record.exact.get("rollout", {}).get("signals", {}).get("rewards", {}).get("mean", [])
    rl = _metrics(record)
    keys = ("completion_length", *OF_A_COMPLETION)
    series: list[Series] = [[*told], *(rl.get(key, []) for key in keys)]
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
    words = "rewards of the tokens sum to the score less the KL of their completion"
    if broken:
        words = (
            f"rewards of a completion's tokens are off its score less its KL by {off:.3g} in step "
            f"{where}"
        )
    return result(name, broken, words, off, off)


OF_A_COMPLETION = ("reward", "kl_coef", "kl_sequence")


def reward_varies(record: RunRecord) -> Invariant:
    """A reward without any spread teaches nothing."""
    name = "reward_varies"
    found = record.rl.get("reward_std")
    told = _metrics(record).get("reward") or []
    bad = sum(value is not None and not math.isfinite(value) for value in told)
    if is_rollout(record) and bad:
        return result(
            name, True, f"{bad} of {len(told)} steps with a reward that is not a number", bad
        )
    if not is_rollout(record):
        return not_for(name, "online RL")
    probed = [value for value in _metrics(record).get("reward_std", ()) if value is not None]
    largest = found.max if found is not None and found.count else max(probed, default=None)
    if largest is None:
        return skip(name, "no rewards recorded")
    words = f"largest standard deviation of rewards {largest:.3g}"
    return result(name, not largest > 0, words, largest, largest)


def same_tokens_sampled_and_trained(record: RunRecord) -> Invariant:
    """The ids that were sampled are the ids that enter the loss: a text that was decoded and
    tokenized again may have others, and the ratio of the policies means nothing."""
    name = "sampled_ids_trained"
    if not is_rollout(record):
        return not_for(name, "online RL")
    counted = [micro["not_sampled"] for micro in micro_batches(record) if "not_sampled" in micro]
    if not counted:
        return skip(name, "what was sampled was not seen (an engine of its own, or tools)")
    strangers = sum(counted)
    words = f"{strangers} trained completions were never sampled" if strangers else "all as sampled"
    return result(name, strangers > 0, words, float(strangers), strangers)
