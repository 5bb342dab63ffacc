"""A run that slows down as it goes: its last steps over its first, against the baseline's own.

Seconds are the training's own (`canary.collect.slowing`): a machine that fills up in the middle of
a run moves them little. One number a launch, as for every timing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from canary.collect.record import RunRecord
from canary.compare.estimate import signed_percent
from canary.compare.report import Check, CheckStatus
from canary.compare.thresholds import Thresholds

NAME = "step_time_within_run"
PRIOR_SD = 0.15
"""Of the logarithm of one launch's ratio, where few baselines tell: above the 0.12 of 64 healthy
launches of 30 to 60 steps on two cores that other trainings used (docs/figures.md)."""
PRIOR_DF = 4
"""Launches that the prior counts for."""
SURE = 3.5
"""Standard errors: the prior's tails, which are heavier than a normal's, are what decides it."""


def within_run_checks(
    current: Sequence[RunRecord], baseline: Sequence[RunRecord], thresholds: Thresholds
) -> list[Check]:
    """The check; none where neither side tells, as in records of earlier versions."""
    now, before = _logs(current), _logs(baseline)
    if now and before:
        return [_judged(now, before, thresholds.max_step_time_increase_pct)]
    if not now and not before:
        return []
    side = "baseline" if now else "current side"
    words = f"the {side} has no step-time trend: too few steps, or recorded by an older version"
    # Open, as everything is that the baseline has and a run of as many steps has not.
    lost = not now and _steps(current) >= _steps(baseline)
    return [Check(NAME, "performance", "trend", "inconclusive" if lost else "skip", words)]


def _judged(now: Sequence[float], before: Sequence[float], limit: float) -> Check:
    """Of logarithms of ratios; `limit` in percent."""
    rise = statistics.fmean(now) - statistics.fmean(before)
    error = _sd(before) * math.sqrt(1 / len(now) + 1 / len(before))
    change = 100 * math.expm1(rise)
    sure = rise > SURE * error
    status: CheckStatus = "pass" if not sure else "fail" if change >= limit else "warn"
    was, is_now = (100 * math.expm1(statistics.fmean(side)) for side in (before, now))
    words = f"step time {signed_percent(is_now)} from the start to the end of the run"
    words += f", in the baseline {signed_percent(was)}"
    if sure:
        words += ": the run slows down over its steps"
    elif change >= limit:
        words += f": within the noise, which reaches {100 * math.expm1(SURE * error):.0f}%"
    return Check(
        NAME,
        "performance",
        "trend",
        status,
        words,
        baseline=was,
        current=is_now,
        unit="%",
        delta=is_now - was,
        delta_pct=change,
        threshold=limit,
    )


def _logs(records: Sequence[RunRecord]) -> list[float]:
    """Of each measured launch that tells."""
    return [
        math.log(launch.slowing)
        for record in records
        for launch in record.launches
        if launch.kind == "measured"
        and launch.slowing is not None
        and 0 < launch.slowing < math.inf
    ]


def _steps(records: Sequence[RunRecord]) -> int:
    return max((launch.steps for record in records for launch in record.launches), default=0)


def _sd(logs: Sequence[float]) -> float:
    """The baseline's own scatter, and the prior's, by how much each knows."""
    mean = statistics.fmean(logs)
    squares = math.fsum((each - mean) ** 2 for each in logs)
    return math.sqrt((PRIOR_DF * PRIOR_SD**2 + squares) / (PRIOR_DF + len(logs) - 1))
