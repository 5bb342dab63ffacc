"""Bottlenecks that the current side has and the baseline had not: notes, never a verdict."""

from __future__ import annotations

from collections.abc import Sequence

from canary.record.bottlenecks import one_line
from canary.record.types import RunRecord


def new_bottlenecks(current: Sequence[RunRecord], baseline: Sequence[RunRecord]) -> list[str]:
    """A line for each that all current runs have and no baseline run that was looked through had;
    none where the baseline tells nothing of it."""
    judged = [record for record in baseline if record.bottlenecks is not None]
    found = []
    for one in (current[-1].bottlenecks or []) if current else []:
        if one.severity != "bottleneck" or not all(_has(r, one.name) for r in current):
            continue
        told = [record for record in judged if one.name not in record.bottlenecks_not_judged]
        if told and not any(_has(record, one.name) for record in told):
            found.append(f"new bottleneck: {one_line(one)}")
    return found


def _has(record: RunRecord, name: str) -> bool:
    """A watch that became a bottleneck is no news of its own: it may be one by a hair."""
    return any(one.name == name for one in record.bottlenecks or [])
