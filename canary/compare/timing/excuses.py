"""What besides the change makes a side slower: other work on the machine, or one stalled step.

Other work is known from the kernel's counts. A file system, a network or a collection of garbage
can hold up any step once. Such a step says nothing about the change, however long it takes. A mean
that is too high only because of it warns and names the step. Repeated stalls still fail: leaving
out one of them changes little.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from canary.compare.checks import CHECKS
from canary.compare.report import Check, CheckStatus, Records
from canary.compare.timing.estimate import signed_percent
from canary.compare.timing.lane import Samples
from canary.record.types import Launch, RunRecord, Stall

DELAY = 0.15
"""Share of the step: a shorter wait for a core explains too little to matter."""
FOREIGN = 30.0
"""Percent of one core used by other processes; the training's threads and workers do not count."""
SLACK = 1.5
"""Caches and memory are shared too, so a crowded step slows by more than its wait for a core."""


@dataclass(frozen=True)
class Crowding:
    """Share of the step that each side waited for a core, and the slowdown this may explain."""

    baseline: float
    current: float
    threads: int = 1
    """Threads that compute one operator together."""
    more: bool = True
    """Whether the current side was more crowded than the baseline, not about equally."""

    @property
    def explains(self) -> float:
        """Return the factor by which crowding may lengthen a step.

        Threads that share an operator wait at its end for the slowest, as long as another process
        holds its core. This wait is not counted, so no share of the time bounds it. Two threads
        without a core half of the time: 5 times as long beside two busy processes, 160 beside
        eight.
        """
        if self.threads > 1:
            return math.inf
        return SLACK * (1 - self.baseline) / max(0.01, 1 - self.current)

    def judged(self, check: Check) -> Check:
        """Return the check, undecided if other work explains its slowdown.

        It lengthens CPU time only by sharing caches and memory; if both sides share, by nothing.
        """
        growth = 1 + (check.delta_pct or 0.0) / 100
        explains = self.explains
        if check.name.startswith("cpu_time"):
            explains = SLACK if self.more else 1.0
        if check.status not in ("fail", "warn") or growth > explains:
            return check
        return self.undecided(check)

    def undecided(self, check: Check) -> Check:
        """Return the check as undecided because of other work."""
        words = (
            f"{CHECKS[check.name].title} is not judged because of other work on the machine: "
            f"the training waited for a core {100 * self.current:.0f}% of the time, "
            f"{100 * self.baseline:.0f}% in the baseline. "
            "Run both again, or alternate them with canary ab"
        )
        return replace(check, status="inconclusive", message=words, unjudged="crowded")


def crowding(current: Records, baseline: Records) -> Crowding | None:
    """Return how other work crowded the current side; None if it did not or was not measured."""
    delays = [_median([r.host.run_delay for r in side]) for side in (baseline, current)]
    foreign = [_median([_foreign(r) for r in side]) for side in (baseline, current)]
    (was, now), (others_was, others_now) = delays, foreign
    if was is None or now is None or others_was is None or others_now is None:
        return None
    if now - was >= DELAY and others_now - others_was >= FOREIGN:
        return Crowding(was, now, min(compute_threads(record) for record in current))
    # Threads that only the current side has are part of the change, as its other processes are.
    threads = min(compute_threads(record) for record in (*current, *baseline))
    if now < DELAY or others_now < FOREIGN or now - _left_by_others(current, threads) >= DELAY:
        return None
    return Crowding(was, now, threads, more=False)


def _left_by_others(records: Records, threads: int) -> float:
    """Return the share of time that `threads` wait for the cores that other processes leave free.

    A side that waits longer runs more threads, which take cores from the other processes too.
    """
    shares = [
        1 - ((record.env.get("cpu_count") or 0) - foreign / 100) / threads
        for record in records
        if (foreign := _foreign(record)) is not None
    ]
    return max(0.0, statistics.median(shares)) if shares else 0.0


def compute_threads(record: RunRecord) -> int:
    """Return the threads per operator on a CPU; 1 on a GPU or if not recorded."""
    device = record.env.get("device") or {}
    if device.get("type", "cpu") != "cpu":
        return 1
    threads = device.get("threads")
    return threads if isinstance(threads, int) and threads > 0 else 1


def _foreign(record: RunRecord) -> float | None:
    """Return the CPU use of other processes than the training's, in percent of one core."""
    sampled = record.memory.sampled
    training, machine = (
        _mean(sampled.get(name)) for name in ("cpu_percent", "machine_cpu_percent")
    )
    cores = record.env.get("cpu_count")
    if training is None or machine is None or cores is None:
        return None
    return machine * cores - training


def _mean(figure: Any) -> float | None:
    mean = figure.get("mean") if isinstance(figure, Mapping) else None
    return float(mean) if isinstance(mean, int | float) else None


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known and len(known) == len(values) else None


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


def lone_stall(current: Records, baseline: Records) -> LoneStall | None:
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


def _timed(side: Records) -> list[tuple[RunRecord, Launch]]:
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


def _usual(step: int, baseline: Records) -> bool:
    """Return whether the step is slow in every run: a checkpoint, for example."""
    stalls: list[Stall | None] = [launch.stall for _, launch in _timed(baseline)]
    same = sum(stall is not None and stall.step == step for stall in stalls)
    return bool(stalls) and same >= USUAL * len(stalls)
