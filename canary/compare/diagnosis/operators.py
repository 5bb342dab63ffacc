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
from canary.record.types import OperatorRow, RunRecord

Change = Literal["new", "gone", "grown", "shrunk", "same"]
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
    """The clock of the self times; None if only calls were counted."""
    complete: bool = True
    """Whether all operators are listed; otherwise those with the least self time are missing."""

    # Cached, not computed per row: a table from an unknown source may be long.
    @cached_property
    def total_ms(self) -> float:
        """Return the self time of all listed operators."""
        return sum(use.self_ms or 0.0 for use in self.uses.values())

    @cached_property
    def most_unlisted_ms(self) -> float:
        """Return the longest self time that an unlisted operator can have."""
        times = [use.self_ms or 0.0 for use in self.uses.values()]
        return min(times, default=0.0) if not self.complete else 0.0

    def use(self, name: str) -> OperatorUse | None:
        """Return an operator's use; None if it may be missing in the table."""
        none = OperatorUse(0.0, None if self.clock is None else 0.0)
        return self.uses.get(name, none if self.complete else None)

    def ms(self, name: str) -> float:
        """Return an operator's self time; of one that may be missing the most that it can be."""
        found = self.use(name)
        return self.most_unlisted_ms if found is None else found.self_ms or 0.0


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

    source: Literal["profiler", "look"] | None
    """None if a side has neither a table nor counts."""
    clock: Clock | None
    rows: tuple[OperatorDifference, ...] = ()
    baseline_total_ms: float | None = None
    """Self time in operators, per step."""
    current_total_ms: float | None = None
    reason: str = ""
    """Why no operators, or no times, were compared."""


def operator_differences(current: RunRecord, baseline: RunRecord) -> OperatorDifferences:
    """Return the operators that differ between two records, by growth.

    With profiles on both sides, by self time on the device if both profiles have it, else on the
    host. Otherwise by the looks' calls per step, under the looks' names (`aten.mm.default`; a
    profiler says `aten::mm`).
    """
    sides = {"the current run": current, "the baseline": baseline}
    profilers = [side.profiler for side in sides.values()]
    unprofiled = [
        name
        for name, side in sides.items()
        if not (side.profiler.steps and side.profiler.top_cpu_ops)
    ]
    if not unprofiled:
        on_device = all(one.top_cuda_ops for one in profilers)
        tables = []
        for one in profilers:
            rows = one.top_cuda_ops if on_device else one.top_cpu_ops
            kinds = one.operator_kinds
            whole = len(rows) < LISTED or (kinds is not None and len(rows) >= kinds)
            tables.append(of_rows(rows, len(one.steps), "device" if on_device else "host", whole))
        return table_differences(*tables)
    reason = f"{unprofiled[0]} was not profiled"
    tables = []
    for side, record in sides.items():
        look = record.exact.get("work", {}).get("operators")
        if not look:
            why = f"{reason}, and {side} counted no operators"
            return OperatorDifferences(None, None, reason=why)
        tables.append(OperatorTable({name: OperatorUse(float(n)) for name, n in look.items()}))
    return table_differences(*tables, reason=reason)


def of_rows(
    rows: Sequence[OperatorRow], steps: int, clock: Clock, complete: bool = True
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


def table_differences(
    current: OperatorTable, baseline: OperatorTable, *, reason: str = ""
) -> OperatorDifferences:
    """Return the operators that differ between two tables of one kind, largest growth first."""
    timed = current.clock is not None
    names = dict.fromkeys((*current.uses, *baseline.uses))
    found = (_difference(name, current, baseline) for name in names)
    rows = [row for row in found if row.change != "same"]
    rows.sort(key=lambda row: (-(row.growth_ms or 0.0), -(row.growth_calls or 0.0), row.name))
    return OperatorDifferences(
        source="profiler" if timed else "look",
        clock=current.clock,
        rows=tuple(rows),
        baseline_total_ms=baseline.total_ms if timed else None,
        current_total_ms=current.total_ms if timed else None,
        reason=reason,
    )


def _difference(name: str, current: OperatorTable, baseline: OperatorTable) -> OperatorDifference:
    """Classify a change; calls have no noise, but times have."""
    now, was = current.use(name), baseline.use(name)
    calls = now.calls - was.calls if now is not None and was is not None else None
    ms = None if current.clock is None else current.ms(name) - baseline.ms(name)
    # The shorter time decides; an unlisted side has none.
    shorter = min(use.self_ms or 0.0 for use in (was, now) if use is not None)
    least = max(LEAST_SHARE * max(current.total_ms, baseline.total_ms), TIME_TOLERANCE * shorter)
    change: Change = "same"
    if now is not None and was is not None and not (now.calls and was.calls):
        change = "new" if now.calls else "gone"
    elif (ms is not None and abs(ms) > least) or calls:
        grew = ms if ms is not None and abs(ms) > least else calls or 0.0
        change = "grown" if grew > 0 else "shrunk"
    return OperatorDifference(name, change, was, now, ms, calls)
