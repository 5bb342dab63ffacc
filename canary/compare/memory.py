"""Checks of memory other than its peak: reserved device memory, and growth from step to step."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from canary.compare.checks import change, check_of
from canary.compare.report import Check, CheckStatus, Records
from canary.compare.thresholds import Thresholds
from canary.compare.timing.estimate import signed_percent
from canary.compare.timing.student import t_quantile
from canary.record.types import Growth

MB = 2**20
RESIDENT_GRAIN_MB = 48.0
"""Resident memory that allocators and libraries gain or keep over a run without a leak."""


def memory_checks(current: Records, baseline: Records, thresholds: Thresholds) -> list[Check]:
    """Return the checks of reserved device memory (if both sides have a device) and of growth."""
    reserved = reserved_memory(current, baseline, thresholds)
    growth = memory_growth(current, baseline, thresholds)
    return [growth] if reserved is None else [reserved, growth]


def reserved_memory(current: Records, baseline: Records, thresholds: Thresholds) -> Check | None:
    """Check the peak that the allocator reserves, which fragmentation raises; None without devices.

    It fails if the median is over the limit and every run is above all baseline runs."""
    before, after = (
        [r.memory.peak_reserved_bytes / MB for r in side if r.memory.peak_reserved_bytes]
        for side in (baseline, current)
    )
    if not before or not after:
        return None
    was, now = statistics.median(before), statistics.median(after)
    limit = min(thresholds.max_mem_increase_pct, 100 * thresholds.max_mem_increase_mb / was)
    rise = 100 * (now / was - 1)
    status: CheckStatus = "pass"
    if rise > limit:
        status = "fail" if min(after) > max(before) else "warn"
    words = f"reserved device memory {signed_percent(rise)}"
    words += f", limit {limit:.3g}%" if rise > limit else ""
    return check_of(
        "reserved_memory", status, words, **change(was, now), unit="MB", threshold=limit
    )


def memory_growth(current: Records, baseline: Records, thresholds: Thresholds) -> Check:
    """Check the slope of memory during training, less the baseline's slope, with its interval."""
    found = [r.memory.growth for r in current if r.memory.growth is not None]
    before = [r.memory.growth for r in baseline if r.memory.growth is not None]
    if not found or not before:
        return check_of("memory_growth", "skip", "too few steps to measure memory growth")
    if len({growth.kind for growth in (*found, *before)}) > 1:
        words = "device memory was measured on one run and resident memory on another"
        return check_of("memory_growth", "inconclusive", words)
    kind = found[0].kind
    base, base_half = _slope(before)
    now, now_half = _slope(found)
    more, half = now - base, math.hypot(now_half, base_half)
    limit = thresholds.max_mem_growth_mb_per_step
    status: CheckStatus = "pass"
    if more - half > limit:
        status = "fail"
    elif more > limit and more - half > 0:
        status = "warn"
    words = f"{kind} memory grows {base:+.3g} -> {now:+.3g} MB/step"
    words += ": a leak" if status == "fail" else ""
    return check_of(
        "memory_growth",
        status,
        words,
        baseline=base,
        current=now,
        unit="MB/step",
        delta=more,
        interval=(more - half, more + half),
        threshold=limit,
        scale="MB/step",
    )


def _slope(launches: Sequence[Growth]) -> tuple[float, float]:
    """Return (slope, half of its 95% interval) in MB per step for the median launch.

    The interval covers what allocators keep and how much the launches scatter."""
    slopes = [growth.bytes_per_step / MB for growth in launches]
    half = statistics.median((growth.high - growth.low) / 2 / MB for growth in launches)
    if launches[0].kind == "resident":
        half = max(half, RESIDENT_GRAIN_MB / min(growth.steps for growth in launches))
    if len(slopes) > 2:
        spread = statistics.stdev(slopes) / math.sqrt(len(slopes))
        half = max(half, t_quantile(0.975, len(slopes) - 1) * spread)
    return statistics.median(slopes), half
