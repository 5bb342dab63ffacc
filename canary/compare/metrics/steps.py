"""Judge a metric step by step against the baseline's runs at the same steps. Pure.

The steps are many questions at once. So the r-th smallest of k p-values counts at level a * r / k.
r is one more than the allowed spikes. That is Markov's bound on the number of false ones. It holds
however the steps depend on each other.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from canary.compare.metrics.history import FLOOR, MIN_RUNS
from canary.compare.metrics.judging import OF_RUNS, Pending
from canary.compare.metrics.samples import Samples
from canary.compare.metrics.statistic import usable, window
from canary.compare.report import Check, CheckStatus
from canary.compare.timing.estimate import DETECTION_POWER
from canary.compare.timing.student import t_quantile, t_upper_tail

COVERED = 0.5
"""Share of the current steps that the baseline must have too."""
SMALLEST = 0.01
"""Percentages are of at least this share of the metric's usual size: a step may be near zero."""


@dataclass(frozen=True)
class Step:
    """One step on both sides, in the bad direction."""

    number: int
    change: float
    room: float
    """The largest change that a percentage allows; 0 without one."""
    size: float
    """Of the baseline's value."""
    error: float
    df: float
    p_value: float


def by_step(samples: Samples, percent: float | None) -> Check | Pending:
    """Judge each step, by `percent` of the baseline or by its spread (None)."""
    steps, covered = _steps(samples, percent)
    if covered < COVERED:
        words = f"{samples.title} only {covered:.0%} of the steps are on the baseline too"
        return samples.check("inconclusive", words)
    allowed = samples.gate.spikes
    if len(samples.baseline) < MIN_RUNS:
        if percent is None:
            words = f"{samples.title} needs {MIN_RUNS} stored runs; there "
            count = len(samples.baseline)
            words += "is 1" if count == 1 else f"are {count}"
            return samples.check("inconclusive", words)
        beyond = [step for step in steps if step.change > step.room]
        words = f". The spread is not known: {MIN_RUNS} runs of the baseline are needed"
        return _check(samples, steps, beyond, percent, words)
    able = sorted(step.p_value for step in steps if step.change >= step.room)
    needed = allowed + 1
    p_value = able[needed - 1] * len(steps) / needed if len(able) >= needed else 1.0
    return Pending(min(1.0, p_value), lambda alpha: _by_levels(samples, steps, percent, alpha))


def _steps(samples: Samples, percent: float | None) -> tuple[list[Step], float]:
    """Return the steps that both sides have, and their share of the current steps."""
    now, before = (
        [dict(zip(curve.steps, curve.values, strict=True)) for curve in side]
        for side in samples.curves
    )
    wanted = [step for step, _ in window(samples.curves[0][0], samples.gate)]
    found = []
    for step in wanted:
        current = [curve[step] for curve in now if step in curve]
        baseline = [b[step] for b in before if step in b and usable(b[step])]
        if len(current) == len(now) and len(baseline) >= max(1, len(before) // 2):
            found.append((step, statistics.fmean(current), baseline))
    usual = statistics.median([abs(statistics.fmean(b)) for *_, b in found]) if found else 0.0
    steps = [_step(samples, *one, least=SMALLEST * usual, percent=percent) for one in found]
    return steps, len(steps) / len(wanted)


def _step(
    samples: Samples,
    number: int,
    current: float,
    baseline: Sequence[float],
    *,
    least: float,
    percent: float | None,
) -> Step:
    mean = statistics.fmean(baseline)
    size = max(abs(mean), least)
    change = current - mean
    both = samples.gate.worse == "both"
    change = abs(change) if both else change * (-1 if samples.gate.worse == "lower" else 1)
    df, error, p_value = 1.0, 0.0, 1.0
    if len(baseline) >= MIN_RUNS:
        sd = max(statistics.stdev(baseline), FLOOR * max(map(abs, (current, *baseline))), 1e-300)
        df = len(baseline) - 1
        error = sd * math.sqrt(1 / len(samples.current) + 1 / len(baseline))
        p_value = min(1.0, (1 + both) * t_upper_tail(change / error, df))
    return Step(number, change, size * (percent or 0) / 100, size, error, df, p_value)


def _by_levels(
    samples: Samples, steps: Sequence[Step], percent: float | None, alpha: float
) -> Check:
    # Of few steps, the allowed spikes are a large share: the level of one test is never above it.
    level = min(alpha, alpha * (samples.gate.spikes + 1) / len(steps))
    beyond = [step for step in steps if step.p_value <= level and step.change >= step.room]
    side = level / (2 if samples.gate.worse == "both" else 1)
    seen = statistics.median(
        100
        * (t_quantile(1 - side, one.df) + t_quantile(DETECTION_POWER, one.df))
        * one.error
        / (one.size or 1.0)
        for one in steps
        if one.error
    )
    found = _check(
        samples, steps, beyond, percent, f". One step alone shows only changes above {seen:.3g}%"
    )
    if found.status == "pass" and percent is not None and seen > percent:
        words = f"{samples.title} single steps are too noisy to rule out {percent:g}%: they show "
        words += f"{seen:.3g}%. Gate the mean or the area instead"
        found = replace(found, status="inconclusive", message=words)
    return replace(found, noise=OF_RUNS)


def _check(
    samples: Samples,
    steps: Sequence[Step],
    beyond: Sequence[Step],
    percent: float | None,
    remark: str,
) -> Check:
    status: CheckStatus = "pass"
    if beyond:
        status = "fail" if len(beyond) > min(samples.gate.spikes, len(steps) - 1) else "warn"
    limit = "the spread of the stored runs" if percent is None else f"{percent:g}% of the baseline"
    words = f"{samples.title} {len(beyond)} of {len(steps)} steps are beyond {limit}"
    if beyond:
        words += f", the first is step {beyond[0].number}"
    if status == "warn":
        words += ", and one spike alone does not decide"
    return samples.check(
        status,
        words + remark,
        baseline=0,
        current=len(beyond),
        unit="steps",
        delta=float(len(beyond)),
        threshold=float(samples.gate.spikes),
        scale="steps",
    )
