"""Whether a record's parts can belong to one run. A record that contradicts itself is refused.
Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from canary.record.types import MOST_ALERTS, Distribution, RunRecord

ROUNDING = 1e-6
"""Relative; sums in another order differ by less."""


def contradictions(record: RunRecord) -> Iterator[tuple[str, str]]:
    """Yield keys whose values another part of the record excludes, with the reason.

    All counts come from the same rows (`canary.record.summary`), so that none of these can happen
    in a run, however it ended. A record without launches says nothing about its steps.
    """
    yield from _launches(record)
    yield from _stability(record)
    yield from _alerts(record)
    yield from _order("perf.step_time", record.perf.step_time)
    for name, values in record.rl.items():
        yield from _order(f"rl.{name}", values)


def _launches(record: RunRecord) -> Iterator[tuple[str, str]]:
    for place, launch in enumerate(record.launches):
        if launch.look_steps > launch.steps:
            words = f"{launch.look_steps}, but the launch has {launch.steps} steps"
            yield f"launches.{place}.look_steps", words
    if len({launch.index for launch in record.launches}) < len(record.launches):
        yield "launches", "two have the same index"
    if not record.launches:
        return
    most = sum(launch.steps - launch.look_steps for launch in record.launches)
    if record.perf.step_time.count > most:
        words = f"{record.perf.step_time.count}, but the launches have {most} steps after the look"
        yield "perf.step_time.count", words


def _stability(record: RunRecord) -> Iterator[tuple[str, str]]:
    found = record.stability
    counts = {
        "loss_values": len(found.loss_values),
        "grad_norm_values": len(found.grad_norm_values),
        "nan_steps": found.nan_steps,
        "inf_steps": found.inf_steps,
    }
    longest = max((launch.steps for launch in record.launches), default=None)
    for key, count in counts.items():
        if longest is not None and count > longest:
            yield f"stability.{key}", f"{count} steps, but no launch has more than {longest}"
    for key, count, at in (
        ("nan_steps", found.nan_steps, found.nan_at),
        ("inf_steps", found.inf_steps, found.inf_at),
    ):
        if count != len(at):
            yield f"stability.{key}", f"{count}, but {len(at)} steps are listed"
    last = found.loss_values[-1] if found.loss_values else None
    if last is not None and found.final_loss is not None and not _same(found.final_loss, last):
        yield "stability.final_loss", f"{found.final_loss}, but the last loss is {last}"


def _alerts(record: RunRecord) -> Iterator[tuple[str, str]]:
    summary = record.alert_summary
    if summary is None:
        return
    for key in ("by_category", "by_severity"):
        count = sum(getattr(summary, key).values())
        if count != summary.total:
            yield f"alert_summary.{key}", f"{count} alerts, but the total is {summary.total}"
    if len(record.alerts) != min(summary.total, MOST_ALERTS):
        yield "alerts", f"{len(record.alerts)}, but the total is {summary.total}"


def _order(key: str, found: Distribution) -> Iterator[tuple[str, str]]:
    ordered = [found.min, found.p50, found.p95, found.p99, found.max]
    if any(map(math.isnan, [*ordered, found.mean])):
        return
    room = ROUNDING * max(abs(value) for value in ordered)
    if any(low > high + room for low, high in pairwise(ordered)):
        yield key, "min, p50, p95, p99 and max are not in order"
    elif not found.min - room <= found.mean <= found.max + room:
        yield f"{key}.mean", f"{found.mean:g} is not between min and max"


def _same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))
