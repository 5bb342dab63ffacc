"""A run's bottlenecks, found in its record, each with its evidence. Pure.

Each bottleneck is a function of the record. It returns a `Bottleneck`, or None without one or if
the record lacks what it needs.
"""

from __future__ import annotations

from canary.record.bottlenecks.common import too_short
from canary.record.bottlenecks.gpu import (
    gpu_utilization,
    host_bound_launches,
    memory_bandwidth,
    small_batches,
)
from canary.record.bottlenecks.host import (
    crowded_threads,
    data_loading,
    gil_contention,
    synchronization,
)
from canary.record.bottlenecks.memory import attention_memory, memory_growth, memory_spikes
from canary.record.types import Bottleneck, RunRecord

ALL = (
    crowded_threads,
    data_loading,
    gil_contention,
    synchronization,
    host_bound_launches,
    small_batches,
    memory_bandwidth,
    memory_spikes,
    memory_growth,
    attention_memory,
    gpu_utilization,
)
"""The order for equal severity and cost: causes before the symptom."""


def find_bottlenecks(record: RunRecord) -> list[Bottleneck]:
    """Return a run's bottlenecks, the worst first; none if it is too short to judge."""
    if too_short(record):
        return []
    found = filter(None, (each(record) for each in ALL))
    return sorted(found, key=lambda one: (one.severity != "bottleneck", -one.cost))


def one_line(found: Bottleneck) -> str:
    """Return a bottleneck's name, evidence and advice in one line."""
    numbers = "; ".join(
        f"{one.what} {one.value:,.3g}{one.unit if one.unit == '%' else f' {one.unit}'.rstrip()}"
        for one in found.evidence
    )
    return f"{found.name}: {numbers}; {found.advice}"
