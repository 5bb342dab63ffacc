"""One stalled step alone does not decide about the mean step time.

A file system, a network or a collection of garbage can hold up any step once. Such a step says
nothing about the change, however long it takes. A mean that is too high only because of it warns
and names the step. Repeated stalls still fail: leaving out one of them changes little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from canary.compare.checks import CHECKS
from canary.compare.report import Check, CheckStatus
from canary.compare.timing.estimate import signed_percent
from canary.compare.timing.lane import Samples
from canary.record.types import Launch, RunRecord, Stall

ALONE = 0.5
"""A stall is not alone if another step is at least this share of its distance from the median."""
USUAL = 0.5
"""A step that is the stall of this share of the baseline's launches is slow in every run."""


@dataclass(frozen=True)
class LoneStall:
    """The one stalled step of the current launches."""

    place: int
    """Of its launch among the samples."""
    step: int
    run_id: str
    times_median: float
    excess: float
    """Log ratio of the launch's mean step time with the step to that without it."""

    def left_out(self, samples: Samples) -> Samples:
        """Return the samples of the mean step time without the step."""
        logs = list(samples.current)
        logs[self.place] -= self.excess
        return replace(samples, current=tuple(logs))

    def excuse(self, check: Check, rest: Check, several: bool) -> Check:
        """Return the failed check, no longer failed because the `rest` does not fail."""
        where = f"step {self.step}{f' of run {self.run_id}' if several else ''}"
        words = (
            f"{CHECKS[check.name].title} {signed_percent(check.delta_pct or 0.0)}, only because "
            f"{where} took {self.times_median:.0f} times the median: one stalled step alone does "
            f"not decide. Without it: {rest.message}"
        )
        status: CheckStatus = "inconclusive" if rest.status == "inconclusive" else "warn"
        return replace(check, status=status, message=words, unjudged="stalled")


def lone_stall(current: Sequence[RunRecord], baseline: Sequence[RunRecord]) -> LoneStall | None:
    """Return the one stalled step of the current side; None if no step or several are stalled."""
    timed = _timed(current)
    far = [
        (distance, launch.stall if first else None, place)
        for place, (_, launch) in enumerate(timed)
        for first, distance in _longest(launch)
    ]
    far.sort(key=lambda one: -one[0])
    if not far:
        return None
    distance, stall, place = far[0]
    record, launch = timed[place]
    alone = all(other < ALONE * distance for other, _, _ in far[1:])
    if stall is None or not alone or _usual(stall.step, baseline):
        return None
    assert launch.mean_step_time_s is not None
    excess = math.log(launch.mean_step_time_s) - math.log(stall.others_mean_s)
    return LoneStall(place, stall.step, record.run_id, 1 + distance, excess)


def _timed(side: Sequence[RunRecord]) -> list[tuple[RunRecord, Launch]]:
    """Return the launches that give samples of the mean step time, in their order."""
    return [
        (record, launch)
        for record in side
        for launch in record.launches
        if launch.status == "completed" and launch.mean_step_time_s is not None
    ]


def _longest(launch: Launch) -> list[tuple[bool, float]]:
    """Return the two longest steps of a launch with a credible stall: whether it is the stall, and
    how far it is from the median, as a multiple of it."""
    stall, mean, median = launch.stall, launch.mean_step_time_s, launch.median_step_time_s
    if stall is None or not mean or not median:
        return []
    # Half of the steps take at least the median, so the mean of the others is at least half of it.
    credible = median / 2 <= stall.others_mean_s <= mean <= stall.seconds < math.inf
    steps = ((True, stall.seconds), (False, stall.next_s)) if credible else ()
    return [(first, seconds / median - 1) for first, seconds in steps]


def _usual(step: int, baseline: Sequence[RunRecord]) -> bool:
    """Return whether the step is slow in every run: a checkpoint, for example."""
    stalls: list[Stall | None] = [launch.stall for _, launch in _timed(baseline)]
    same = sum(stall is not None and stall.step == step for stall in stalls)
    return bool(stalls) and same >= USUAL * len(stalls)
