"""Find operators that a run calls more often, or spends longer in, than another. Pure.

The profilers' tables give self time and calls per step. If one run was not profiled, the counts of
both looks give calls per step, which have no noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

    @property
    def total_ms(self) -> float:
        """Return the self time of all listed operators."""
        return sum(use.self_ms or 0.0 for use in self.uses.values())

    def lacks(self, name: str) -> bool:
        """Whether the table does not say how often an operator was used."""
        return not self.complete and name not in self.uses


@dataclass(frozen=True)
class OperatorDifference:
    """One operator on both sides."""

    name: str
    change: Change
    baseline: OperatorUse
    current: OperatorUse
    growth_ms: float | None
    """Self time per step, current less baseline; None if times were not measured."""
    growth_calls: float
    """Calls per step, current less baseline."""


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
    """Return the operators that differ between two tables of one kind, largest growth first. One
    that an incomplete table lacks is left out."""
    timed = current.clock is not None
    names = dict.fromkeys((*current.uses, *baseline.uses))
    known = [name for name in names if not (current.lacks(name) or baseline.lacks(name))]
    least_ms = LEAST_SHARE * max(current.total_ms, baseline.total_ms)
    found = (_difference(name, current, baseline, least_ms) for name in known)
    rows = [row for row in found if row.change != "same"]
    rows.sort(key=lambda row: (-(row.growth_ms or 0.0), -row.growth_calls, row.name))
    return OperatorDifferences(
        source="profiler" if timed else "look",
        clock=current.clock,
        rows=tuple(rows),
        baseline_total_ms=baseline.total_ms if timed else None,
        current_total_ms=current.total_ms if timed else None,
        reason=reason,
    )


def _difference(
    name: str, current: OperatorTable, baseline: OperatorTable, least_ms: float
) -> OperatorDifference:
    """Classify a change; calls have no noise, but times have."""
    none = OperatorUse(0.0, None if current.clock is None else 0.0)
    was, now = (side.uses.get(name, none) for side in (baseline, current))
    calls = now.calls - was.calls
    ms = None if was.self_ms is None or now.self_ms is None else now.self_ms - was.self_ms
    least = max(least_ms, TIME_TOLERANCE * min(was.self_ms or 0.0, now.self_ms or 0.0))
    grew = ms if ms is not None and abs(ms) > least else calls
    change: Change = "grown" if grew > 0 else "shrunk" if grew < 0 else "same"
    if not (now.calls and was.calls):
        change = "new" if now.calls else "gone"
    return OperatorDifference(name, change, was, now, ms, calls)
