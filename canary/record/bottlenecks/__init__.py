"""A run's bottlenecks, found in its record, each with its evidence. Pure.

Each bottleneck is a function of the record. It returns a `Bottleneck`, None without one, or
`NotJudged` with a reason if the record lacks what it needs.
"""

from __future__ import annotations

from collections.abc import Callable

from canary.record.bottlenecks.common import Answer, NotJudged, too_short
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

ALL: tuple[Callable[[RunRecord], Answer], ...] = (
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
"""The order for equal severity and cost: causes before the symptom. A function has its bottleneck's
name."""


def find_bottlenecks(record: RunRecord) -> tuple[list[Bottleneck], dict[str, str]]:
    """Return a run's bottlenecks, the worst first, and the reasons of those not judged, by name."""
    found: list[Bottleneck] = []
    short = too_short(record)
    if short:
        return found, {each.__name__: short for each in ALL}
    not_judged: dict[str, str] = {}
    for each in ALL:
        answer = each(record)
        if isinstance(answer, NotJudged):
            not_judged[each.__name__] = answer.reason
        elif answer is not None:
            found.append(answer)
    found.sort(key=lambda one: (one.severity != "bottleneck", -one.cost))
    return found, not_judged


def with_bottlenecks(record: RunRecord) -> RunRecord:
    """Return the record with its bottlenecks."""
    found, not_judged = find_bottlenecks(record)
    return record.model_copy(update={"bottlenecks": found, "bottlenecks_not_judged": not_judged})


def one_line(found: Bottleneck) -> str:
    """Return a bottleneck's name, evidence and advice in one line."""
    numbers = "; ".join(
        f"{one.what} {one.value:,.3g}{one.unit if one.unit == '%' else f' {one.unit}'.rstrip()}"
        for one in found.evidence
    )
    return f"{found.name}: {numbers}; {found.advice}"
