"""Invariants of online RL: ratio and KL at the start, advantages, rewards."""

from __future__ import annotations

import math

from canary.collect.jsonio import number
from canary.collect.record import RunRecord
from canary.compare.inputs_stages import is_rollout
from canary.compare.invariant_parts import (
    argument,
    micro_batches,
    result,
    skip,
    starts_at_reference,
)
from canary.compare.report import Check

ADVANTAGE_SUM_TOLERANCE = 1e-3
"""Of an advantage, on average; scaled advantages are of size 1."""
ADVANTAGE_SCALE_TOLERANCE = 0.1
KL_AT_START = 1e-5


def starts_at_ratio_one(record: RunRecord) -> Check:
    """The first step of online RL: nothing clipped, KL 0."""
    name = "starts_at_ratio_one"
    if not is_rollout(record):
        return skip(name, "for online RL")
    rl = record.exact.get("trajectory", {}).get("rl", {})
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


def _whole_groups(record: RunRecord) -> str:
    """Why a step's advantages are not whole groups; empty where they are."""
    if not is_rollout(record):
        return "for online RL"
    for key in ("steps_per_generation", "num_iterations", "generation_batch_size"):
        if argument(record, key, None) not in (None, 1):
            return f"{key} is set: a step is not a whole generation"
    micro = micro_batches(record)
    if not micro or any("advantages" not in m for m in micro):
        return "advantages were not recorded"
    return ""


def advantages_sum_to_zero(record: RunRecord) -> Check:
    """Advantages are deviations from their group's mean (Shao et al. 2024, section 4.1), or from
    the mean of the others in it (RLOO: Ahmadian et al. 2024, eq. 7)."""
    name = "advantages_sum_to_zero"
    reason = _whole_groups(record)
    if reason:
        return skip(name, reason)
    worst = 0.0
    for step in record.exact["batches"]:
        values = [float(number(v)) for micro in step for v in micro["advantages"]]
        mean = sum(values) / len(values) if values else 0.0
        worst = mean if not abs(mean) <= abs(worst) else worst
    broken = not abs(worst) <= ADVANTAGE_SUM_TOLERANCE
    return result(name, broken, f"mean advantage of a step at most {worst:.2g}", worst, worst)


def advantages_scaled(record: RunRecord) -> Check:
    """Scaled by the group's standard deviation, the squares of an unsaturated group sum to its
    size less one."""
    name = "advantages_scaled"
    reason = _whole_groups(record)
    if not reason and record.config.get("training_type") == "rloo":
        reason = "RLOO does not scale by group"
    if not reason and argument(record, "scale_rewards", "group") not in ("group", True, None):
        reason = "scale_rewards is not by group"
    if not reason and argument(record, "loss_type", None) == "dr_grpo":
        reason = "dr_grpo does not scale"
    rl = record.exact.get("trajectory", {}).get("rl", {})
    saturated = rl.get("frac_reward_zero_std")
    size = record.config.get("num_generations")
    if reason:
        return skip(name, reason)
    if not saturated or not size:
        return skip(name, "the share of saturated groups was not recorded")
    ratios = []
    for step, share in zip(record.exact["batches"], saturated, strict=False):
        values = [float(number(v)) for micro in step for v in micro["advantages"]]
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


def reward_varies(record: RunRecord) -> Check:
    """A reward without any spread teaches nothing."""
    name = "reward_varies"
    found = record.rl.get("reward_std")
    told = record.exact.get("trajectory", {}).get("rl", {}).get("reward") or []
    bad = sum(value is not None and not math.isfinite(number(value)) for value in told)
    if is_rollout(record) and bad:
        return result(
            name, True, f"{bad} of {len(told)} steps with a reward that is no number", bad
        )
    if not is_rollout(record) or found is None or found.count == 0:
        return skip(name, "for online RL" if not is_rollout(record) else "no rewards recorded")
    return result(
        name,
        not found.max > 0,
        f"largest standard deviation of rewards {found.max:.3g}",
        found.max,
        found.max,
    )


def same_tokens_sampled_and_trained(record: RunRecord) -> Check:
    """The ids that were sampled are the ids that enter the loss: a text that was decoded and
    tokenized again may have others, and the ratio of the policies means nothing."""
    name = "sampled_ids_trained"
    if not is_rollout(record):
        return skip(name, "for online RL")
    counted = [micro["not_sampled"] for micro in micro_batches(record) if "not_sampled" in micro]
    if not counted:
        return skip(name, "what was sampled was not seen (an engine of its own, or tools)")
    strangers = sum(counted)
    words = f"{strangers} trained completions were never sampled" if strangers else "all as sampled"
    return result(name, strangers > 0, words, float(strangers), strangers)
