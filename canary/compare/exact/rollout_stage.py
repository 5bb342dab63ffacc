"""Compares the values that online RL computes from its completions before it learns from them.

Scores, log-probabilities, values, rewards, advantages and returns follow from each other. The
first of them that differs shows which computation changed.
"""

from __future__ import annotations

from canary.compare.exact.sides import Sides, is_finite, learned
from canary.compare.exact.tolerances import relative_difference
from canary.compare.report import Difference
from canary.record.exact import Exact
from canary.record.types import RunRecord

SIGNALS = {
    "scores": "the reward model's or the reward functions' scores of the completions",
    "logprobs": "the policy's log-probabilities of the sampled tokens",
    "entropy": "the policy's entropy over the sampled tokens",
    "reference_logprobs": "the reference model's log-probabilities of these tokens",
    "values": "the value head's estimates",
    "rewards": "the rewards of the tokens, from scores and KL",
    "advantages": "the advantages, from rewards and values",
    "returns": "the returns, from advantages and values",
}
"""The signals in the order of cause and effect."""
STATISTICS = {"mean": "mean", "rms": "root mean square", "placed": ""}
"""Statistics of a step, and their words in a message."""
SHOWN = 0.1
"""A statistic is shown if it differs by more than this share of the largest difference."""
SCALES = {"values": "returns"}
"""Signals that start at 0, and the signal whose scale they are compared on."""


def steps_with_same_completions(baseline: RunRecord, current: RunRecord) -> int:
    """Return how many first steps have equal prompts and completions, apart from padding."""
    same = 0
    looks = (side.exact.get("batches", []) for side in (baseline, current))
    for steps in zip(*looks, strict=False):
        was, now = ([micro.get("rows") or micro.get("sha256") for micro in step] for step in steps)
        if was != now:
            break
        same += 1
    return same


def rollout_differences(sides: Sides) -> list[Difference]:
    """Return the signals that differ at the first step where one does, while completions are equal.

    After step 1 they depend on what was learned and belong to the trajectory."""
    counts = sides.read(lambda exact: len(exact.get("rollout", {}).get("tokens", [])))
    steps = min(steps_with_same_completions(sides.baseline, sides.current), *counts)
    for step in range(1, steps + 1):
        differing = (_at_step(sides, signal, step) for signal in SIGNALS)
        if found := [difference for difference in differing if difference is not None]:
            return found
    return []


def _at_step(sides: Sides, signal: str, step: int) -> Difference | None:
    was, now = sides.read(lambda exact: _statistics(exact, signal, step))
    if not was or not now:
        return None
    of = SCALES.get(signal, signal)
    others = sides.read(lambda exact: _statistics(exact, of, step))
    sizes_of = [side.get("rms", 0.0) for side in (was, now, *others)]
    scale = max(filter(is_finite, sizes_of), default=0.0)
    sizes = {key: relative_difference(was[key], now[key], scale) for key in STATISTICS}
    size = max(sizes.values())
    if size <= sides.tolerance.at_step(step, "rollout"):
        return None
    words = ", ".join(
        f"{name} {was[key]:.6g} -> {now[key]:.6g}"
        for key, name in STATISTICS.items()
        if name and sizes[key] > SHOWN * size
    )
    share = f"of the root mean square of {of}"
    words = words or "different values with equal mean and root mean square"
    words = f"{signal}: {words} at step {step} ({size:.1e} {share})"
    stage = "rollout" if step == 1 else "trajectory"
    more = {"relative": size, "scale": share, "step": step}
    return learned(stage, signal, was["mean"], now["mean"], words, **more)


def _statistics(exact: Exact, signal: str, step: int) -> dict[str, float]:
    """Return `{mean, rms, placed}` of a step, counted from 1; empty if not recorded."""
    values = exact.get("rollout", {}).get("signals", {}).get(signal, {})
    series = {"mean": values.get("mean", []), "rms": values.get("rms", [])}
    series["placed"] = values.get("placed", [])
    if any(len(one) < step for one in series.values()):
        return {}
    return {key: one[step - 1] for key, one in series.items()}
