"""Find a run that slows down over its steps: its last steps over its first, against the baseline.

Only the training's seconds count (`canary.record.slowing`), so a machine that gets busy during a
run changes them little. Each launch gives one number, as for every timing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from canary.compare.checks import check_of
from canary.compare.report import Check, CheckStatus, Moved
from canary.compare.thresholds import Thresholds
from canary.compare.timing.estimate import signed_percent
from canary.record.slowing import LEAST_STEPS
from canary.record.summary import untimed_steps
from canary.record.types import RunRecord

NAME = "step_time_within_run"
TIMED_STEPS = 3 * LEAST_STEPS
"""Timed steps that a launch needs: its first and last thirds are compared."""
PRIOR_SD = 0.15
"""Assumed spread of the logarithm of one launch's ratio. 64 healthy launches of 30 to 60 steps on
two cores shared with other trainings had 0.12 (docs/figures.md)."""
PRIOR_DF = 4
"""Launches that the prior counts as."""
SURE = 3.5
"""Standard errors of a sure rise, set for the prior's tails, which are heavier than a normal's."""


def within_run_checks(
    current: Sequence[RunRecord], baseline: Sequence[RunRecord], thresholds: Thresholds
) -> list[Check]:
    """Return the check; an empty list if neither side recorded the trend."""
    now, before = _logs(current), _logs(baseline)
    if now and before:
        return [_judged(now, before, thresholds.max_step_time_increase_pct)]
    if not now and not before:
        return []
    side, records = ("baseline", baseline) if now else ("current side", current)
    if max(map(_timed, records)) < TIMED_STEPS:
        return [check_of(NAME, "skip", f"the {side} {_too_few(records)}")]
    words = f"the {side} has no step-time trend"
    # A signal that only the baseline has is undecided, not skipped: the run must not hide it.
    status: CheckStatus = "skip" if now else "inconclusive"
    return [check_of(NAME, status, words)]


def _judged(now: Sequence[float], before: Sequence[float], limit: float) -> Check:
    """Return the check of logarithms of ratios; `limit` in percent."""
    rise = statistics.fmean(now) - statistics.fmean(before)
    error = _sd(before) * math.sqrt(1 / len(now) + 1 / len(before))
    change = 100 * math.expm1(rise)
    sure = rise > SURE * error
    status: CheckStatus = "pass" if not sure else "fail" if change >= limit else "warn"
    was, is_now = (100 * math.expm1(statistics.fmean(side)) for side in (before, now))
    words = f"step time {signed_percent(is_now)} from the start to the end of the run"
    words += f", {signed_percent(was)} in the baseline"
    if sure:
        words += ": the run slows down"
    elif change >= limit:
        words += f": within the noise, which reaches {100 * math.expm1(SURE * error):.0f}%"
    numbers = Moved(baseline=was, current=is_now, delta=is_now - was, delta_pct=change)
    return check_of(NAME, status, words, **numbers, unit="%", threshold=limit)


def _logs(records: Sequence[RunRecord]) -> list[float]:
    """Return log ratios of the launches that have one."""
    return [
        math.log(launch.slowing)
        for record in records
        for launch in record.launches
        if launch.slowing is not None and 0 < launch.slowing < math.inf
    ]


def _timed(record: RunRecord) -> float:
    """Return the most steps that a launch timed: those after warm-up that were not profiled."""
    # A launch without a step count is taken as long, or a record could hide its trend.
    done = [launch.steps or math.inf for launch in record.launches]
    # Of several launches, one is profiled.
    untimed = untimed_steps(record) + (_profiled(record) if len(done) == 1 else 0)
    return max(max(done, default=0) - untimed, 0)


def _profiled(record: RunRecord) -> int:
    last = record.first_step - 1 + untimed_steps(record)
    return len({step for step in record.profiler.steps if step > last})


def _too_few(records: Sequence[RunRecord]) -> str:
    longest = max(records, key=_timed)
    words = f"timed {_timed(longest)} steps after warm-up, but {TIMED_STEPS} are needed"
    profiled = _profiled(longest)
    return f"{words} ({profiled} profiled)" if profiled else words


def _sd(logs: Sequence[float]) -> float:
    """Return the pooled spread of the baseline and the prior, weighted by degrees of freedom."""
    mean = statistics.fmean(logs)
    squares = math.fsum((each - mean) ** 2 for each in logs)
    return math.sqrt((PRIOR_DF * PRIOR_SD**2 + squares) / (PRIOR_DF + len(logs) - 1))
