"""The check of reserved device memory; that of its peak is in `canary.compare.timing.checks`."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from canary.compare.checks import change, check_of
from canary.compare.report import Check, CheckStatus
from canary.compare.thresholds import Thresholds
from canary.compare.timing.estimate import signed_percent
from canary.record.types import RunRecord

MB = 2**20


def memory_checks(
    current: Sequence[RunRecord], baseline: Sequence[RunRecord], thresholds: Thresholds
) -> Iterator[Check]:
    """Yield the check of what the allocator reserves, which fragmentation raises; nothing without
    devices on both sides.

    It fails if the median is over the limit and every run is above all baseline runs."""
    before, after = (
        [r.memory.peak_reserved_bytes / MB for r in side if r.memory.peak_reserved_bytes]
        for side in (baseline, current)
    )
    if not before or not after:
        return
    was, now = statistics.median(before), statistics.median(after)
    limit = min(thresholds.max_mem_increase_pct, 100 * thresholds.max_mem_increase_mb / was)
    rise = 100 * (now / was - 1)
    status: CheckStatus = "pass"
    if rise > limit:
        status = "fail" if min(after) > max(before) else "warn"
    words = f"reserved device memory {signed_percent(rise)}"
    words += f", limit {limit:.3g}%" if rise > limit else ""
    yield check_of("reserved_memory", status, words, **change(was, now), unit="MB", threshold=limit)
