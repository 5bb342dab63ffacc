"""Bottlenecks of the current side that the baseline did not have: notes, never a verdict."""

from __future__ import annotations

from collections.abc import Sequence

from canary.record.bottlenecks import one_line
from canary.record.types import RunRecord


def new_bottlenecks(current: Sequence[RunRecord], baseline: Sequence[RunRecord]) -> list[str]:
    """Return a line per bottleneck that all current runs have and no checked baseline run has."""
    judged = [record for record in baseline if record.bottlenecks is not None]
    found = []
    for one in (current[-1].bottlenecks or []) if current else []:
        if one.severity != "bottleneck" or not all(_has(r, one.name) for r in current):
            continue
        checked = [record for record in judged if one.name not in record.bottlenecks_not_judged]
        if checked and not any(_has(record, one.name) for record in checked):
            found.append(f"new bottleneck: {one_line(one)}")
    return found


def _has(record: RunRecord, name: str) -> bool:
    """Any severity counts: a `watch` that became a `bottleneck` may have grown by very little."""
    return any(one.name == name for one in record.bottlenecks or [])
