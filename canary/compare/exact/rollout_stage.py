"""What online RL made of its completions, before anything is learned.

Scores, log-probabilities, values, rewards, advantages and returns follow from each other in this
order, so that the first of them that differs names what computes otherwise.
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
    "logprobs": "the policy's log-probabilities of its own tokens",
    "entropy": "the policy's entropy over its tokens",
    "reference_logprobs": "the reference's log-probabilities of these tokens",
    "values": "the value head's estimates",
    "rewards": "the rewards of the tokens, made of scores and KL",
    "advantages": "the advantages, made of rewards and values",
    "returns": "the returns, made of advantages and values",
}
"""What each is, in the order of cause and effect."""
STATISTICS = ("mean", "rms", "placed")
WORDS = {"mean": "mean", "rms": "root mean square"}
SHOWN = 0.1
"""A statistic is shown that moved by at least this share of what moved most."""
SCALES = {"values": "returns"}
"""Signals that begin at 0 and are compared on the scale of another."""


def recorded(record: RunRecord) -> bool:
    """Whether the probe was told of rollouts."""
    return bool(_rollout(record).get("tokens"))


def _rollout(record: RunRecord) -> Rollout:
    return record.exact.get("rollout", {})


def steps_with_same_completions(baseline: RunRecord, current: RunRecord) -> int:
    """Steps before the first whose prompts or completions differ, padding aside."""
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
    """The signals that differ at the first step at which one does, as long as the completions are
    the same. After step 1 they follow from what was learned and belong to the trajectory."""
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
    moved = [key for key in WORDS if sizes[key] > SHOWN * size]
    words = ", ".join(f"{WORDS[key]} {_show(was[key])} -> {_show(now[key])}" for key in moved)
    share = f"of the root mean square of {SCALES.get(signal, signal)}"
    words = words or "other values with equal mean and root mean square"
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
    """The largest difference of a signal's statistics at a step, of its root mean square; 0 where a
    side has none."""
    if not all(_statistics(side, signal, step) for side in (baseline, current)):
        return 0.0
    return max(_sizes(baseline, current, signal, step).values())


def _sizes(baseline: RunRecord, current: RunRecord, signal: str, step: int) -> dict[str, float]:
    """Of each statistic, on the scale of the signal."""
    was, now = (_statistics(side, signal, step) for side in (baseline, current))
    scale = _scale((baseline, current), signal, step)
    return {key: relative_difference(was[key], now[key], scale) for key in STATISTICS}


def _statistics(record: RunRecord, signal: str, step: int) -> dict[str, float]:
    """`{mean, rms, placed}` of a step, counted from 1; empty where it was not recorded."""
    held = _rollout(record).get("signals", {}).get(signal, {})
    series = (held.get("mean", []), held.get("rms", []), held.get("placed", []))
    if any(len(values) < step for values in series):
        return {}
    return {key: values[step - 1] for key, values in zip(STATISTICS, series, strict=True)}


def _scale(sides: Sequence[RunRecord], signal: str, step: int) -> float:
    """The largest root mean square of a side; what is not finite has none."""
    names = (signal, SCALES.get(signal, signal))
    found = [_statistics(side, name, step).get("rms", 0.0) for side in sides for name in names]
    return max((value for value in found if abs(value) < float("inf")), default=0.0)


def not_compared(baseline: RunRecord, current: RunRecord) -> Check | None:
    """The check where nothing could be compared although both sides recorded it; None otherwise."""
    if recorded(baseline) and recorded(current):
        if steps_with_same_completions(baseline, current):
            return None
        return _skipped("other completions from step 1 on")
    if recorded(current):
        return _skipped("the baseline is of a version that did not record it")
    return None


def _skipped(reason: str) -> Check:
    words = f"what is made of the completions: {reason}"
    return Check(STAGE, "correctness", "exact", "skip", words)


def _show(value: float) -> str:
    return f"{value:.6g}"
