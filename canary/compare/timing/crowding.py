"""Decide whether other work on the machine explains a slower side, from the kernel's counts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from canary.compare.checks import CHECKS
from canary.compare.report import Check
from canary.record.types import RunRecord

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
        return replace(
            check, status="inconclusive", message=self._sentence(check), unjudged="crowded"
        )

    def _sentence(self, check: Check) -> str:
        return (
            f"{CHECKS[check.name].title} is not judged because of other work on the machine: "
            f"the training waited for a core {100 * self.current:.0f}% of the time, "
            f"{100 * self.baseline:.0f}% in the baseline. "
            "Run both again, or alternate them with canary ab"
        )


def crowding(current: Sequence[RunRecord], baseline: Sequence[RunRecord]) -> Crowding | None:
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


def _left_by_others(records: Sequence[RunRecord], threads: int) -> float:
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
    device = record.env.get("device", {})
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
