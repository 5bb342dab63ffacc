"""Whether other work on the machine explains a slower side: measured by the kernel, not guessed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from canary.compare.report import Check
from canary.record.types import RunRecord

DELAY = 0.15
"""Of the step's time: less waiting for a core explains nothing worth a word."""
FOREIGN = 30.0
"""Percent of one core that processes of others took: the training's own threads and workers that
crowd each other are its own matter."""
SLACK = 1.5
"""Caches and memory are shared too: a crowded step is longer than its waiting for a core says."""


@dataclass(frozen=True)
class Crowding:
    """Waiting for a core on both sides, as shares of the step, and the slowdown it may explain."""

    baseline: float
    current: float
    threads: int = 1
    """That compute one operator together."""
    more: bool = True
    """Than on the baseline's side; else both were about as crowded."""

    @property
    def explains(self) -> float:
        """Times that a step may take longer for it.

        Threads that share an operator wait at its end for the last of them, each time as long as
        another process holds its core, and the waiting is not counted: no share of the time bounds
        that. Measured with two threads that had no core for half of it: 5 times as long beside two
        busy processes, 160 times beside eight.
        """
        if self.threads > 1:
            return math.inf
        return SLACK * (1 - self.baseline) / max(0.01, 1 - self.current)

    def judged(self, check: Check) -> Check:
        """A slowdown that other work on the machine explains is not judged; a larger one is. Of CPU
        time it explains what caches and memory that are shared do: nothing where both shared."""
        growth = 1 + (check.delta_pct or 0.0) / 100
        explains = self.explains
        if check.name.startswith("cpu_time"):
            explains = SLACK if self.more else 1.0
        if check.status not in ("fail", "warn") or growth > explains:
            return check
        return replace(check, status="inconclusive", message=self._sentence(), unjudged="crowded")

    def _sentence(self) -> str:
        return (
            f"not judged: the training waited for a core {100 * self.current:.0f}% of the time, "
            f"{100 * self.baseline:.0f}% in the baseline: other work on the machine; run both "
            "again, or in alternation (canary ab)"
        )


def crowding(current: Sequence[RunRecord], baseline: Sequence[RunRecord]) -> Crowding | None:
    """How others crowded the current side; None where they did not, or nobody measured it."""
    delays = [_median([r.host.run_delay for r in side]) for side in (baseline, current)]
    foreign = [_median([_foreign(r) for r in side]) for side in (baseline, current)]
    (was, now), (others_was, others_now) = delays, foreign
    if was is None or now is None or others_was is None or others_now is None:
        return None
    if now - was >= DELAY and others_now - others_was >= FOREIGN:
        return Crowding(was, now, min(compute_threads(record) for record in current))
    # Threads that the current side alone has are its own matter, as its other processes are.
    threads = min(compute_threads(record) for record in (*current, *baseline))
    if now < DELAY or others_now < FOREIGN or now - _left_by_others(current, threads) >= DELAY:
        return None
    return Crowding(was, now, threads, more=False)


def _left_by_others(records: Sequence[RunRecord], threads: int) -> float:
    """Share of the time that so many threads wait on the cores that others leave to them. A side
    that waits longer has more of its own running: that takes cores from the others too."""
    shares = []
    for record in records:
        foreign, cores = _foreign(record), record.env.get("cpu_count")
        if foreign is not None and isinstance(cores, int):
            shares.append(1 - (cores - foreign / 100) / threads)
    return max(0.0, statistics.median(shares)) if shares else 0.0


def compute_threads(record: RunRecord) -> int:
    """Threads of one operator on a CPU; one where the record does not tell, or a GPU computes."""
    device = record.env.get("device")
    if not isinstance(device, Mapping) or device.get("type", "cpu") != "cpu":
        return 1
    threads = device.get("threads")
    return threads if isinstance(threads, int) and threads > 0 else 1


def _foreign(record: RunRecord) -> float | None:
    """CPU of processes that are not the training's, in percent of one core."""
    sampled = record.memory.sampled
    own, machine = (_mean(sampled.get(name)) for name in ("cpu_percent", "machine_cpu_percent"))
    cores = record.env.get("cpu_count")
    if own is None or machine is None or not isinstance(cores, int):
        return None
    return machine * cores - own


def _mean(figure: Any) -> float | None:
    mean = figure.get("mean") if isinstance(figure, Mapping) else None
    return float(mean) if isinstance(mean, int | float) else None


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known and len(known) == len(values) else None
