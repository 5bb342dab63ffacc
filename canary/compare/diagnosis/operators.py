"""Find operators that a run calls more often, or spends longer in, than another. Pure.

The profilers' tables give self time and calls per step. If one run was not profiled, the counts of
both looks give calls per step, which have no noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from canary.record.profile import LISTED
from canary.record.types import OperatorRow, Profiler, RunRecord

Change = Literal["new", "gone", "grown", "shrunk", "same"]
Source = Literal["profiler", "look"]
Clock = Literal["device", "host"]

TIME_TOLERANCE = 0.25
"""Share by which an operator's self time may differ between runs of the same code."""
LEAST_SHARE = 0.01
"""Smallest growth that matters, as a share of the step's self time in operators."""


@dataclass(frozen=True)
class OperatorUse:
    """Calls and time of one operator, per step."""

    calls: float
    self_ms: float | None = None
    """Without the operators that it calls; None if only calls were counted."""


@dataclass(frozen=True)
class OperatorTable:
    """The operators of one run, per step."""

    uses: Mapping[str, OperatorUse]
    clock: Clock | None = None
    """The clock of the self times."""
    complete: bool = True
    """Whether all operators are listed; otherwise those with the least self time are missing."""

    # Cached, not computed per row: a table from an unknown source may be long.
    @cached_property
    def total_ms(self) -> float:
        """Return the self time of all listed operators."""
        return sum(use.self_ms or 0.0 for use in self.uses.values())

    def unlisted(self) -> OperatorUse | None:
        """Return no calls for an unlisted operator of a complete table; None if unknown."""
        if not self.complete:
            return None
        return OperatorUse(0.0, None if self.clock is None else 0.0)

    @cached_property
    def most_unlisted_ms(self) -> float:
        """Return the longest self time that an unlisted operator can have."""
        times = [use.self_ms or 0.0 for use in self.uses.values()]
        return min(times, default=0.0) if not self.complete else 0.0


@dataclass(frozen=True)
class OperatorDifference:
    """One operator on both sides; a side is None if its table is incomplete and lacks it."""

    name: str
    change: Change
    baseline: OperatorUse | None
    current: OperatorUse | None
    growth_ms: float | None
    """Self time per step, current less baseline; a lower bound if a side is None; None if times
    were not measured."""
    growth_calls: float | None
    """Calls per step, current less baseline; None if a side is None."""


@dataclass(frozen=True)
class OperatorDifferences:
    """The operators that differ, those that grew most first, and what was compared."""

    source: Source | None
    """None if a side has neither a table nor counts."""
    clock: Clock | None
    rows: tuple[OperatorDifference, ...] = ()
    baseline_total_ms: float | None = None
    """Self time in operators, per step."""
    current_total_ms: float | None = None
    reason: str = ""
    """Why no operators, or no times, were compared."""


def operator_differences(
    current: RunRecord, baseline: RunRecord, *, clock: Clock | None = None, keep_same: bool = False
) -> OperatorDifferences:
    """Return the operators that differ between two records, by growth.

    With profiles on both sides, by self time of `clock`; the default is the device if both profiles
    have it, else the host. Otherwise by the looks' calls per step, under the looks' names
    (`aten.mm.default`; a profiler says `aten::mm`).
    """
    sides = (("the current run", current.profiler), ("the baseline", baseline.profiler))
    lacks = (f"{side} was not profiled" for side, p in sides if not (p.steps and p.top_cpu_ops))
    reason = next(lacks, "")
    if not reason:
        on_device = current.profiler.top_cuda_ops and baseline.profiler.top_cuda_ops
        chosen: Clock = clock or ("device" if on_device else "host")
        tables = profiled(current.profiler, chosen), profiled(baseline.profiler, chosen)
        return table_differences(*tables, keep_same=keep_same)
    counted_now, counted_before = counted(current), counted(baseline)
    if counted_now is None or counted_before is None:
        side = "the current run" if counted_now is None else "the baseline"
        return OperatorDifferences(None, None, reason=f"{reason}, and {side} counted no operators")
    return table_differences(counted_now, counted_before, keep_same=keep_same, reason=reason)


def profiled(profiler: Profiler, clock: Clock) -> OperatorTable:
    """Return the table of a profiled record: the operators with the most self time."""
    rows = profiler.top_cuda_ops if clock == "device" else profiler.top_cpu_ops
    kinds = profiler.operator_kinds
    complete = len(rows) < LISTED or (kinds is not None and len(rows) >= kinds)
    return of_rows(rows, len(profiler.steps), clock, complete=complete)


def of_rows(
    rows: Sequence[OperatorRow], steps: int, clock: Clock, *, complete: bool = True
) -> OperatorTable:
    """Return the table of rows that were counted over `steps` steps, at least one."""
    uses = {
        row.name: OperatorUse(
            row.count / steps,
            (row.self_cuda_time_ms if clock == "device" else row.self_cpu_time_ms) / steps,
        )
        for row in rows
    }
    return OperatorTable(uses, clock, complete)


def counted(record: RunRecord) -> OperatorTable | None:
    """Return the operators that the look counted in one step; None if it did not."""
    operators = record.exact.get("work", {}).get("operators")
    if not operators:
        return None
    return OperatorTable({name: OperatorUse(float(count)) for name, count in operators.items()})


def table_differences(
    current: OperatorTable, baseline: OperatorTable, *, keep_same: bool = False, reason: str = ""
) -> OperatorDifferences:
    """Return the operators that differ between two tables of one kind, largest growth first."""
    timed = current.clock is not None
    names = dict.fromkeys((*current.uses, *baseline.uses))
    rows = [_difference(name, current, baseline) for name in names]
    kept = [row for row in rows if keep_same or row.change != "same"]
    kept.sort(key=lambda row: (-(row.growth_ms or 0.0), -(row.growth_calls or 0.0), row.name))
    return OperatorDifferences(
        source="profiler" if timed else "look",
        clock=current.clock,
        rows=tuple(kept),
        baseline_total_ms=baseline.total_ms if timed else None,
        current_total_ms=current.total_ms if timed else None,
        reason=reason,
    )


def _difference(name: str, current: OperatorTable, baseline: OperatorTable) -> OperatorDifference:
    now = current.uses.get(name) or current.unlisted()
    was = baseline.uses.get(name) or baseline.unlisted()
    growth_calls = now.calls - was.calls if now is not None and was is not None else None
    growth_ms = None
    if current.clock is not None:
        after = _ms(now, current.most_unlisted_ms)
        before = _ms(was, baseline.most_unlisted_ms)
        growth_ms = after - before
    least = LEAST_SHARE * max(current.total_ms, baseline.total_ms)
    change = _change(now, was, growth_ms, growth_calls, least)
    return OperatorDifference(name, change, was, now, growth_ms, growth_calls)


def _ms(use: OperatorUse | None, at_most: float) -> float:
    return at_most if use is None else use.self_ms or 0.0


def _change(
    now: OperatorUse | None,
    was: OperatorUse | None,
    growth_ms: float | None,
    growth_calls: float | None,
    least_ms: float,
) -> Change:
    """Classify a change; calls have no noise, but times have."""
    if now is not None and was is not None and not (now.calls and was.calls):
        return "new" if now.calls else "gone"
    if growth_ms is not None:
        # The shorter time decides; an unlisted side has none.
        times = [use.self_ms or 0.0 for use in (was, now) if use is not None]
        if abs(growth_ms) > max(least_ms, TIME_TOLERANCE * min(times)):
            return "grown" if growth_ms > 0 else "shrunk"
    if growth_calls:
        return "grown" if growth_calls > 0 else "shrunk"
    return "same"
