"""Compares the values that online RL computes from its completions before it learns from them.

Scores, log-probabilities, values, rewards, advantages and returns follow from each other. The
first of them that differs shows which computation changed.
"""

from __future__ import annotations

from collections.abc import Sequence

from canary.compare.exact.tolerances import Tolerance, relative_difference
from canary.compare.report import Check, Difference
from canary.record.exact import Micro, Rollout
from canary.record.types import RunRecord

STAGE = "rollout"

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
STATISTICS = ("mean", "rms", "placed")
WORDS = {"mean": "mean", "rms": "root mean square"}
SHOWN = 0.1
"""A statistic is shown if it differs by more than this share of the largest difference."""
SCALES = {"values": "returns"}
"""Signals that start at 0, and the signal whose scale they are compared on."""


def recorded(record: RunRecord) -> bool:
    """Whether the look recorded rollouts."""
    return bool(_rollout(record).get("tokens"))


def _rollout(record: RunRecord) -> Rollout:
    return record.exact.get("rollout", {})


def steps_with_same_completions(baseline: RunRecord, current: RunRecord) -> int:
    """Return how many first steps have equal prompts and completions, apart from padding."""
    before, after = (side.exact.get("batches", []) for side in (baseline, current))
    same = 0
    for was, now in zip(before, after, strict=False):
        if _sequences(was) != _sequences(now):
            break
        same += 1
    return same


def _sequences(step: Sequence[Micro]) -> list[object]:
    return [micro.get("rows") or micro.get("sha256") for micro in step]


def rollout_differences(
    baseline: RunRecord, current: RunRecord, tolerance: Tolerance
) -> list[Difference]:
    """Return the signals that differ at the first step where one does, while completions are equal.

    After step 1 they depend on what was learned and belong to the trajectory."""
    if not (recorded(baseline) and recorded(current)):
        return []
    steps = min(
        steps_with_same_completions(baseline, current),
        *(len(_rollout(side)["tokens"]) for side in (baseline, current)),
    )
    for step in range(1, steps + 1):
        found = [
            difference
            for signal in SIGNALS
            if (difference := _at_step(baseline, current, signal, step, tolerance)) is not None
        ]
        if found:
            return found
    return []


def _at_step(
    baseline: RunRecord, current: RunRecord, signal: str, step: int, tolerance: Tolerance
) -> Difference | None:
    was, now = (_statistics(side, signal, step) for side in (baseline, current))
    if not was or not now:
        return None
    sizes = _sizes(baseline, current, signal, step)
    size = max(sizes.values())
    if size <= tolerance.rollout_at_step(step):
        return None
    first = step == 1
    differing = [key for key in WORDS if sizes[key] > SHOWN * size]
    words = ", ".join(f"{WORDS[key]} {_show(was[key])} -> {_show(now[key])}" for key in differing)
    share = f"of the root mean square of {SCALES.get(signal, signal)}"
    words = words or "different values with equal mean and root mean square"
    return Difference(
        STAGE if first else "trajectory",
        signal,
        was["mean"],
        now["mean"],
        relative=size,
        scale=share,
        detail=f"{signal}: {words} at step {step} ({size:.1e} {share})",
        learned=True,
        step=step,
    )


def apart_at_step(baseline: RunRecord, current: RunRecord, signal: str, step: int) -> float:
    """Return the largest difference of a signal's statistics at a step, as a share of its root
    mean square; 0 if a side did not record it."""
    if not all(_statistics(side, signal, step) for side in (baseline, current)):
        return 0.0
    return max(_sizes(baseline, current, signal, step).values())


def _sizes(baseline: RunRecord, current: RunRecord, signal: str, step: int) -> dict[str, float]:
    """Return the relative difference of each statistic, on the scale of the signal."""
    was, now = (_statistics(side, signal, step) for side in (baseline, current))
    scale = _scale((baseline, current), signal, step)
    return {key: relative_difference(was[key], now[key], scale) for key in STATISTICS}


def _statistics(record: RunRecord, signal: str, step: int) -> dict[str, float]:
    """Return `{mean, rms, placed}` of a step, counted from 1; empty if not recorded."""
    values_of = _rollout(record).get("signals", {}).get(signal, {})
    series = (values_of.get("mean", []), values_of.get("rms", []), values_of.get("placed", []))
    if any(len(values) < step for values in series):
        return {}
    return {key: values[step - 1] for key, values in zip(STATISTICS, series, strict=True)}


def _scale(sides: Sequence[RunRecord], signal: str, step: int) -> float:
    """Return the largest finite root mean square of both sides."""
    names = (signal, SCALES.get(signal, signal))
    found = [_statistics(side, name, step).get("rms", 0.0) for side in sides for name in names]
    return max((value for value in found if abs(value) < float("inf")), default=0.0)


def not_compared(baseline: RunRecord, current: RunRecord) -> Check | None:
    """Return a skipped check if there is nothing to compare for a harmless reason; else None."""
    if recorded(baseline) and recorded(current):
        if steps_with_same_completions(baseline, current):
            return None
        return _skipped("the completions differ from step 1 on")
    if recorded(current):
        return _skipped("the baseline's version did not record them")
    return None


def _skipped(reason: str) -> Check:
    words = f"values computed from the completions: {reason}"
    return Check(STAGE, "correctness", "exact", "skip", words)


def _show(value: float) -> str:
    return f"{value:.6g}"
