"""What holds a run back: bottlenecks named from its record, each with the numbers behind it. Pure.

One file a bottleneck. Each has a `NAME` and a function `judge(record)` that returns a `Bottleneck`,
a `NotJudged` with the reason where the record lacks what it needs, or None where there is none.
"""

from __future__ import annotations

from canary.record.bottlenecks import (
    attention,
    crowded_threads,
    data_loading,
    gil,
    gpu_utilization,
    kernel_launches,
    memory_bandwidth,
    memory_growth,
    memory_spikes,
    small_batches,
    synchronization,
)
from canary.record.bottlenecks.common import NotJudged, too_short
from canary.record.types import Bottleneck, RunRecord

ALL = (
    crowded_threads,
    data_loading,
    gil,
    synchronization,
    kernel_launches,
    small_batches,
    memory_bandwidth,
    memory_spikes,
    memory_growth,
    attention,
    gpu_utilization,
)
"""In the order in which those of one severity and cost are told: causes before the symptom."""


def find_bottlenecks(record: RunRecord) -> tuple[list[Bottleneck], dict[str, str]]:
    """The bottlenecks of a run, the worst first; and those not judged, by name, with the reason."""
    found: list[Bottleneck] = []
    short = too_short(record)
    if short:
        return found, {each.NAME: short for each in ALL}
    not_judged: dict[str, str] = {}
    for each in ALL:
        answer = each.judge(record)
        if isinstance(answer, NotJudged):
            not_judged[each.NAME] = answer.reason
        elif answer is not None:
            found.append(answer)
    found.sort(key=lambda one: (one.severity != "bottleneck", -one.cost))
    return found, not_judged


def with_bottlenecks(record: RunRecord) -> RunRecord:
    """The record with its bottlenecks in it."""
    found, not_judged = find_bottlenecks(record)
    return record.model_copy(update={"bottlenecks": found, "bottlenecks_not_judged": not_judged})


def one_line(found: Bottleneck) -> str:
    """Name, the numbers, and what to do."""
    numbers = "; ".join(
        f"{one.what} {one.value:,.3g}{one.unit if one.unit == '%' else f' {one.unit}'.rstrip()}"
        for one in found.evidence
    )
    return f"{found.name}: {numbers}; {found.advice}"


__all__ = ["ALL", "NotJudged", "find_bottlenecks", "one_line", "with_bottlenecks"]
