"""Compares the counts of the exact lane: work, live memory, files and calls.

Counts have no noise, so any difference is real. A rise above the limit fails, a smaller one warns.
"""

from __future__ import annotations

from dataclasses import replace

from canary.compare.checks import check_of, sides_with
from canary.compare.exact.counts import Counted
from canary.compare.exact.signals import COUNTS
from canary.compare.report import Check, CheckStatus, Difference
from canary.compare.thresholds import Thresholds
from canary.record.types import RunRecord


def work_checks(
    baseline: RunRecord, current: RunRecord, thresholds: Thresholds
) -> tuple[list[Check], list[Difference]]:
    """Return the checks of all counts, and their differences in order."""
    checks: list[Check] = []
    differences: list[tuple[bool, Difference]] = []
    for item in (count.of(baseline, current, thresholds) for count in COUNTS):
        checks.append(_check(item))
        if checks[-1].status in ("fail", "warn") or (
            not item.why_not and abs(item.delta or 0) > item.quiet_below
        ):
            failed = checks[-1].status == "fail"
            differences.append((failed, _difference(item, baseline, current)))
    # Within a stage, failures come before warnings, and collectives before other counts, because
    # each collective causes reads and operators.
    differences.sort(key=lambda p: (p[1].order, not p[0], p[1].signal != "collectives"))
    return checks, [difference for _, difference in differences]


def _check(item: Counted) -> Check:
    row, delta = item.row, item.delta
    if item.why_not or delta is None:
        sides = (side is not None for side in (item.baseline, item.current))
        reason = item.why_not or f"{row.words}: counted {sides_with(*sides)}"
        return check_of(row.name, "skip", reason)
    status: CheckStatus = "pass"
    if delta > item.limit:
        status = "fail"
    elif delta > item.quiet_below:
        status = "warn"
    base = item.baseline or 0.0
    pct = 100 * delta / base if base and base > 0 else None
    size = f"{pct:+.1f}%" if pct is not None and abs(pct) < 1000 else f"{delta:+,.6g}"
    if status == "fail":
        size += f", limit {_limit(item)}"
    same = "equal" if delta == 0 else f"{base:,.6g} -> {item.current:,.6g} ({size})"
    return replace(
        check_of(row.name, status, f"{row.words}: {same}"),
        baseline=item.baseline,
        current=item.current,
        unit=row.unit,
        delta=delta,
        delta_pct=pct,
        threshold=item.limit if item.limit_pct is None else item.limit_pct,
        scale=row.unit if item.limit_pct is None else "%",
    )


def _limit(item: Counted) -> str:
    """Return in words how far a count may rise."""
    if item.limit_pct is not None:
        return f"{item.limit_pct:g}%"
    return f"{item.limit:+,.6g} {item.row.unit.partition('/')[0]}".rstrip()


def _difference(item: Counted, baseline: RunRecord, current: RunRecord) -> Difference:
    detail = f"{item.row.words} {item.baseline:,.6g} -> {item.current:,.6g}"
    if item.row.name in ("operators", "host_reads"):
        detail += _operators_that_differ(baseline, current)
    return Difference(
        item.row.stage,
        item.row.name,
        item.baseline,
        item.current,
        count=max(1, round(abs(item.delta or 0))),
        detail=detail,
    )


def _operators_that_differ(baseline: RunRecord, current: RunRecord) -> str:
    """Return the end of a sentence: the operators whose counts changed most, and the forwards."""
    works = [side.exact.get("work", {}) for side in (baseline, current)]
    was, now = (work.get("operators", {}) for work in works)
    forwards = [work.get("forwards") or 0 for work in works]
    changes = {
        name: now.get(name, 0) - was.get(name, 0)
        for name in dict.fromkeys((*was, *now))
        if now.get(name, 0) != was.get(name, 0)
    }
    largest = sorted(changes.items(), key=lambda item: (-abs(item[1]), item[0]))[:3]
    if forwards[0] and forwards[0] != forwards[1]:
        largest = [("forward passes", forwards[1] - forwards[0]), *largest]
    return (
        " (" + ", ".join(f"{name} {change:+d}" for name, change in largest) + ")" if largest else ""
    )
