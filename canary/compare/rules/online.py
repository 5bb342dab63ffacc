"""Online RL: ratios, rewards, advantages and groups of completions."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from canary.compare.exact.inputs_stages import is_rollout
from canary.compare.exact.tolerances import arithmetic_of
from canary.compare.rules.facts import (
    advantages_of_tokens,
    argument,
    farthest_from_one,
    logged,
    micro_batches,
    no_whole_groups,
    setting,
    starts_at_reference,
    trainer_of,
)
from canary.compare.rules.rule import Answer, answer, holds, not_asked, only_for, rule
from canary.record.exact import Micro, Series
from canary.record.types import RunRecord

KL_AT_START = 1e-5
RATIO_TOLERANCE = {"float32": 1e-4, "bfloat16": 5e-2, "float16": 1e-2}
"""Of the policy ratio from 1 before the first update: log-probabilities of equal parameters differ
only by the order of additions."""
VARIANCE_OFF = 0.1
LEAST_SPREAD = 1e-3
"""Smallest standard deviation of scores to judge: with less, whitening can amplify rounding."""
LEAST_GROUP_SPREAD = 0.02
"""Mean standard deviation of a group's rewards. Below, the 1e-4 that trl adds before it divides by
it counts: a deviation of 0.002 gives a variance of 0.91."""
ROUNDED_AWAY = 0.05
"""Largest advantage of a group whose rewards differ by rounding alone: trl divides it by 1e-4."""
MEAN = re.compile(r"^rewards/(.+)/mean$")
LEAST_STEPS = 3
RARE = "its reward may be rare, or reached by all completions"
REWARD_OFF = 1e-4
"""Of the mean reward of a completion, on a scale of at least 1."""
OF_A_COMPLETION = ("reward", "kl_coef", "kl_sequence")


@rule(
    "starts_at_ratio_one",
    "training starts at ratio 1 and KL 0",
    "online RL that logs its ratio, or its KL with a reference that equals the policy",
    "compute old and new log-probabilities alike: temperature, mask, dropout, dtype",
    "https://arxiv.org/abs/1707.06347",
)
def starts_at_ratio_one(record: RunRecord) -> Answer:
    """Online RL starts with nothing clipped and KL 0. With a recorded `ratio_deviation`, the first
    update of every step must start at ratio 1."""
    if not is_rollout(record):
        return only_for("online RL")
    rl = logged(record)
    kl = (rl.get("kl") or [None])[0]
    if any(value is not None for value in rl.get("ratio_deviation", ())):
        found = _every_step(record, rl)
        return found if found.is_against else _kl(record, kl) or found
    clipped = [v[0] for k, v in rl.items() if k.startswith("clip_ratio") and v and v[0] is not None]
    if not clipped and kl is None:
        return not_asked("neither clip ratio nor KL was recorded")
    off = [v for v in clipped if v != 0]
    words = f"{max(off, default=0.0):.3g} of the policy ratios are clipped in step 1"
    return _kl(record, kl) or answer(words, broken=bool(off), size=len(off))


def _kl(record: RunRecord, kl: float | None) -> Answer | None:
    if kl is None or not starts_at_reference(record) or abs(kl) <= KL_AT_START:
        return None
    words = f"KL is {kl:.3g} before the first update, expected 0"
    return answer(words, broken=True, size=float(kl), value=kl)


def _every_step(record: RunRecord, rl: Mapping[str, Series]) -> Answer:
    """PPO starts each step's updates at the policy that sampled (Schulman et al. 2017, eq. 6), and
    its training at the reference model."""
    deviations = [float(v) for v in rl["ratio_deviation"] if v is not None]
    worst = max(deviations, key=lambda value: value if value == value else math.inf)
    words = f"policy ratios differ from 1 by up to {worst:.3g}"
    broken = not worst <= RATIO_TOLERANCE.get(arithmetic_of(record), 1e-4)
    if broken:
        words += " before the first update of a step"
    return answer(words, broken=broken, size=worst, value=worst)


@rule(
    "advantages_scaled",
    "advantages have variance 1",
    "a trainer that scales by group, or PPO's whitened advantages",
    "divide by the standard deviation of the same rows whose mean is subtracted",
    "https://arxiv.org/abs/2402.03300",
)
def advantages_scaled(record: RunRecord) -> Answer:
    """Advantages have variance 1 per group, or per step for PPO: the squares of a group with
    unequal rewards sum to its size minus 1."""
    if advantages_of_tokens(record).get("rms"):
        return _whitened(record)
    if not is_rollout(record):
        return only_for("online RL")
    if reason := no_whole_groups(record) or _not_scaled(record):
        return not_asked(reason)
    size = setting(record, "num_generations")
    if not isinstance(size, int) or size < 2:
        return not_asked("the size of a group was not recorded")
    steps, ratios = record.exact["batches"], []
    if not any(map(_by_prompt, steps)):
        return not_asked("prompts were not recorded")
    spreads = [*logged(record).get("reward_std", ()), *[None] * len(steps)]
    for step, spread in zip(steps, spreads, strict=False):
        if spread is not None and spread < LEAST_GROUP_SPREAD:
            continue
        groups = [group for group in _by_prompt(step) if not max(map(abs, group)) <= ROUNDED_AWAY]
        if any(len(group) % size for group in groups):
            continue
        expected = sum(map(len, groups)) / size * (size - 1)
        if expected:
            ratios.append(sum(value * value for group in groups for value in group) / expected)
    if not ratios:
        return not_asked("the rewards are equal in every group")
    worst = farthest_from_one(ratios)
    return _of_variance(worst, f"variance of advantages in a group is {worst:.3g}, expected 1")


def _by_prompt(step: Sequence[Micro]) -> list[list[float]]:
    """Return the advantages of each prompt: trl shuffles the rows of a step."""
    found: dict[str, list[float]] = defaultdict(list)
    for micro in step:
        prompts = micro.get("rows", {}).get("prompt_ids", ())
        for prompt, value in zip(prompts, micro["advantages"], strict=False):
            if value is not None:
                found[prompt].append(value)
    return [*found.values()]


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
    worst = farthest_from_one(scaled)
    words = f"standard deviation of a step's advantages is {worst:.3g}, expected 1"
    return _of_variance(worst, words)


def _of_variance(worst: float, words: str) -> Answer:
    return answer(words, broken=not abs(worst - 1) <= VARIANCE_OFF, size=worst - 1, value=worst)


FEWEST_LOGGED = 8
"""Steps of an imported log, so that equal means are no chance."""


@rule(
    "reward_varies",
    "the reward varies",
    "online RL with logged rewards",
    "call each reward function on a few completions by hand: is its parser wrong?",
    "https://github.com/OpenRLHF/OpenRLHF/issues/1219",
)
def reward_varies(record: RunRecord) -> Answer:
    """A reward that never varies teaches nothing."""
    rewards = logged(record).get("reward") or []
    if not is_rollout(record) and (record.source is None or not rewards):
        return only_for("online RL")
    found = record.rl.get("reward_std")
    bad = sum(value is not None and not math.isfinite(value) for value in rewards)
    if bad:
        words = f"the reward is not finite in {bad} of {len(rewards)} steps"
        return answer(words, broken=True, size=bad)
    looked = [value for value in logged(record).get("reward_std", ()) if value is not None]
    largest = found.max if found is not None and found.count else max(looked, default=None)
    if largest is None and record.source is not None and len(rewards) >= FEWEST_LOGGED:
        same = len({*rewards}) == 1
        words = f"the mean reward is {rewards[0]:.4g} in all {len(rewards)} steps of the log"
        return answer(words, broken=True) if same else holds("the mean reward varies")
    if largest is None:
        return not_asked("no rewards were recorded")
    words = f"the standard deviation of rewards is at most {largest:.3g}"
    if not largest > 0:
        words = "all completions of a step get the same reward"
    return answer(words, broken=not largest > 0, size=largest, value=largest)


@rule(
    "each_reward_varies",
    "each reward function gives several values",
    "several reward functions whose rewards are logged",
    "call the function by hand on a completion that should be rewarded: is its parser wrong?",
    "https://github.com/unslothai/unsloth/issues/1761",
)
def each_reward_varies(record: RunRecord) -> Answer:
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
        return not_asked(f"rewards of {steps} steps say little: at least {LEAST_STEPS} are needed")
    if len(constant) == len(found) or any(not math.isfinite(one) for one in constant.values()):
        return not_asked("no reward function varies")
    words, place = f"{len(found)} reward functions give several values", ""
    if constant:
        place, value = next(iter(constant.items()))
        words = f"{place} gives {value:.3g} to all completions of {steps} steps, and others vary"
    broken = bool(constant)
    return answer(words, broken=broken, items=constant, place=place, doubt=RARE)


@rule(
    "rewards_add_up",
    "rewards sum to the score minus the KL",
    "PPO whose rewards are not whitened",
    "give the score to one token of each completion, and the KL to each token",
    "https://arxiv.org/abs/1909.08593",
)
def rewards_add_up(record: RunRecord) -> Answer:
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
    if abs(off) <= REWARD_OFF:
        return holds("token rewards sum to the score minus the KL of their completion", value=off)
    words = f"token rewards differ from score minus KL by {off:.3g} in step {where}"
    return answer(words, broken=True, size=off, value=off, place=f"step {where}")


@rule(
    "sampled_ids_trained",
    "the trained ids are the sampled ids",
    "a sampler in the training process",
    "train on the ids of the sampler; do not tokenize its text again",
)
def sampled_ids_trained(record: RunRecord) -> Answer:
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
    return answer(words, broken=foreign > 0, size=foreign, value=foreign)


@rule(
    "group_prompts",
    "all completions of a group have one prompt",
    "groups of a known size on one rank",
    "let the sampler repeat each prompt num_generations times in a row",
    "https://github.com/dllm-reasoning/d1/issues/19",
)
def group_prompts(record: RunRecord) -> Answer:
    """An advantage compares completions of one prompt: each prompt comes a whole number of times
    per group. The rows may be shuffled after their advantages are known."""
    if not is_rollout(record):
        return only_for("online RL")
    size, steps, whole_size = (
        setting(record, name)
        for name in ("num_generations", "steps_per_generation", "generation_batch_size")
    )
    if not isinstance(size, int) or size < 2:
        return only_for("groups of completions")
    micro = micro_batches(record)
    if any("rank" in m for m in micro):
        return not_asked("groups lie on several ranks")
    if not isinstance(steps, int) or steps < 1:
        return not_asked("how many micro-batches share their completions is not known")
    whole = [micro[at : at + steps] for at in range(0, len(micro) - steps + 1, steps)]
    counts = [
        Counter(row for m in one for row in m.get("rows", {}).get("prompt_ids", ()))
        for one in whole
    ]
    if not counts or not all(counts):
        return not_asked("prompts were not recorded")
    if any(sum(one.values()) != whole_size for one in counts):
        return not_asked("rows were left out of a generation")
    own = record.exact.get("facts", {}).get("own_advantages")
    torn = [
        (at, count)
        for at, prompts in enumerate(counts, start=1)
        for count in prompts.values()
        if count % size
    ]
    prompts = sum(map(len, counts))
    words = f"{prompts} prompts come in groups of {size}"
    place, doubt = "", f"the trainer overrides {own}" if own else ""
    if torn:
        at, count = torn[0]
        words = (
            f"{len(torn)} of {prompts} prompts share a group with others: one has {count} "
            f"completions, and a group has {size}"
        )
        place = f"generation {at}"
    return answer(
        words, broken=bool(torn), size=len(torn), value=len(torn), place=place, doubt=doubt
    )
