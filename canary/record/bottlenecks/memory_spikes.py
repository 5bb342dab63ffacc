"""Some steps need far more memory than the rest."""

from __future__ import annotations

from canary.record.bottlenecks.common import MB, Answer, NotJudged, band
from canary.record.types import Bottleneck, Evidence, RunRecord

NAME = "memory_spikes"
WATCH, BOTTLENECK = 1.3, 1.6
"""The peak over the typical step's memory."""
LEAST_MB = 200.0
"""Smaller spikes are harmless."""


def judge(record: RunRecord) -> Answer:
    """Judge by the peak over the median step's memory, and by the allocator's retries."""
    memory, peak_mb = record.memory, record.perf.max_mem_mb
    if memory.typical_bytes is None or peak_mb is None:
        return NotJudged("memory was not recorded step by step")
    typical_mb = memory.typical_bytes / MB
    ratio = peak_mb / typical_mb
    severity = band(ratio, WATCH, BOTTLENECK) if peak_mb - typical_mb >= LEAST_MB else None
    evidence = [
        Evidence(what="peak", value=peak_mb, unit="MB"),
        Evidence(what="typical", value=typical_mb, unit="MB"),
    ]
    if memory.peak_step is not None:
        evidence.append(Evidence(what="first at step", value=memory.peak_step))
    if memory.alloc_retries:
        severity = "bottleneck"
        evidence.append(
            Evidence(what="allocator retries, each a stall", value=memory.alloc_retries)
        )
    if severity is None:
        return None
    return Bottleneck(
        name=NAME,
        severity=severity,
        evidence=evidence,
        advice="limit the longest batch (max_length, batches grouped by length) or the work that "
        "comes every few steps; for fragmentation set expandable_segments",
    )
