"""Stages 10 to 12 of the exact lane: the work done, live memory, files and calls.

Counts have no noise, so any difference is real; each is judged by its size against a threshold of
its own, and a difference below it warns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from canary.compare.checks import CHECKS, check_of
from canary.compare.exact.growth import held_bytes, tensor_growth
from canary.compare.exact.micro_batches import same_size
from canary.compare.report import Check, CheckStatus, Difference
from canary.compare.thresholds import Thresholds
from canary.record.types import RunRecord

ORDER = {"work": 10, "memory": 11, "calls": 12}
SETTLED_STEP = 3
"""Live tensors are followed from here: the first steps make the optimizer's state."""
MB = 2**20


@dataclass(frozen=True)
class Counted:
    """One count on both sides and how far it may rise."""

    name: str
    """Of its check, whose title says what is counted."""
    stage: str
    baseline: float | None
    current: float | None
    limit: float
    """In the unit of the count."""
    unit: str = ""
    quiet_below: float = 0.0
    """Differences up to this are not worth a word."""
    why_not: str = ""
    """Reason to skip."""
    limit_pct: float | None = None
    """The limit in percent of the baseline, where it was given so."""

    @property
    def words(self) -> str:
        """What is counted."""
        return CHECKS[self.name].title


def work_checks(
    baseline: RunRecord, current: RunRecord, thresholds: Thresholds
) -> tuple[list[Check], list[Difference]]:
    """Checks of the three stages, and their differences in order."""
    checks: list[Check] = []
    differences: list[tuple[bool, Difference]] = []
    counted = [
        *_step_counts(baseline, current, thresholds),
        *_live_tensors(baseline, current, thresholds),
        *_calls(baseline, current, thresholds),
    ]
    for item in counted:
        checks.append(_check(item))
        if checks[-1].status in ("fail", "warn") or (
            not item.why_not and _delta(item) and abs(_delta(item) or 0) > item.quiet_below
        ):
            failed = checks[-1].status == "fail"
            differences.append((failed, _difference(item, baseline, current)))
    # Within a stage, what fails tells more than what warns; and collectives tell more than the
    # reads and operators that each of them brings along.
    differences.sort(key=lambda p: (p[1].order, not p[0], p[1].signal != "collectives"))
    return checks, [difference for _, difference in differences]


def _delta(item: Counted) -> float | None:
    if item.baseline is None or item.current is None:
        return None
    return item.current - item.baseline


def _check(item: Counted) -> Check:
    delta = _delta(item)
    if item.why_not or delta is None:
        reason = item.why_not or f"{item.words} not counted on both sides"
        return check_of(item.name, "skip", reason)
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
        check_of(item.name, status, f"{item.words}: {same}"),
        baseline=item.baseline,
        current=item.current,
        unit=item.unit,
        delta=delta,
        delta_pct=pct,
        threshold=item.limit if item.limit_pct is None else item.limit_pct,
        scale=item.unit if item.limit_pct is None else "%",
    )


def _limit(item: Counted) -> str:
    """How far a count may rise, in words."""
    if item.limit_pct is not None:
        return f"{item.limit_pct:g}%"
    return f"{item.limit:+,.6g} {item.unit.partition('/')[0]}".rstrip()


def _difference(item: Counted, baseline: RunRecord, current: RunRecord) -> Difference:
    detail = f"{item.words} {item.baseline:,.6g} -> {item.current:,.6g}"
    if item.name in ("operators", "host_reads"):
        detail += _operators_that_differ(baseline, current)
    return Difference(
        ORDER[item.stage],
        item.stage,
        item.name,
        item.baseline,
        item.current,
        count=max(1, round(abs(_delta(item) or 0))),
        detail=detail,
    )


def _operators_that_differ(baseline: RunRecord, current: RunRecord) -> str:
    """The operators that changed most, by name."""
    was, now = (side.exact.get("work", {}).get("operators", {}) for side in (baseline, current))
    changes = {
        name: now.get(name, 0) - was.get(name, 0)
        for name in dict.fromkeys((*was, *now))
        if now.get(name, 0) != was.get(name, 0)
    }
    largest = sorted(changes.items(), key=lambda item: (-abs(item[1]), item[0]))[:3]
    return (
        " (" + ", ".join(f"{name} {change:+d}" for name, change in largest) + ")" if largest else ""
    )


def _step_counts(baseline: RunRecord, current: RunRecord, thresholds: Thresholds) -> list[Counted]:
    before, after = baseline.exact.get("work", {}), current.exact.get("work", {})
    reason = _not_the_same_step(baseline, current)
    step = int(after.get("step", 1))
    was_cut, now_cut = (max(1, len(_micro(side, step))) for side in (baseline, current))
    # The reads of a micro-batch come with each further one, and are no new ones.
    further = max(0, now_cut / was_cut - 1) * (before.get("host_reads") or 0)

    def counted(name: str, limit: float, *, key: str = "", share: bool = False) -> Counted:
        """One count of the step; with `share`, its limit is in percent of the baseline."""
        was, now = before.get(key or name), after.get(key or name)
        bound = limit / 100 * was if share and was is not None else limit
        none = f"the baseline counted no {CHECKS[name].title}" if share and was == 0 else ""
        return Counted(
            name,
            "work",
            was,
            now,
            bound,
            why_not=reason or none,
            limit_pct=limit if share else None,
        )

    # A read in every micro-batch fails; a smaller number warns.
    reads = further + max(0, thresholds.max_host_reads_increase * now_cut - 1)
    calls = thresholds.max_operators_increase_pct
    return [
        counted("tokens_fed", thresholds.max_tokens_fed_increase_pct, share=True),
        counted("host_reads", reads),
        counted("collectives", thresholds.max_collectives_increase),
        counted("recompiles", thresholds.max_recompiles_increase),
        counted("operators", calls, key="operator_total", share=True),
        counted("flops", thresholds.max_flops_increase_pct, share=True),
    ]


def _micro(record: RunRecord, step: int) -> list[Mapping[str, Any]]:
    """The micro-batches of a step; of several ranks those of the first, whose work is counted."""
    batches = record.exact.get("batches", [])
    of_step = batches[step - 1] if 0 < step <= len(batches) else []
    return [micro for micro in of_step if not micro.get("rank")]


def _not_the_same_step(baseline: RunRecord, current: RunRecord) -> str:
    """Why the counted steps cannot be compared; empty where they can."""
    before, after = baseline.exact.get("work"), current.exact.get("work")
    if not before or not after:
        return "the work of a step was not counted on both sides"
    if before.get("step") != after.get("step"):
        return "another step was counted"
    step = int(after.get("step", 1))
    if not same_size(_micro(baseline, step), _micro(current, step)):
        return f"the batches of the counted step {step} have other shapes"
    return ""


def _live_tensors(baseline: RunRecord, current: RunRecord, thresholds: Thresholds) -> list[Counted]:
    sides = (baseline, current)
    series = [
        side.exact.get("memory", {}).get("live_tensors", [])[SETTLED_STEP - 1 :] for side in sides
    ]
    reason = "" if min(map(len, series)) >= 3 else "too few probe steps to follow live tensors"
    was, now = (round(tensor_growth(values), 3) if len(values) >= 3 else None for values in series)
    limit = thresholds.max_live_tensors_per_step
    # The threads that exchange gradients let go of their buffers when they please.
    several = any(side.ranks for side in sides)
    return [
        Counted(
            "live_tensors",
            "memory",
            was,
            now,
            limit,
            unit="tensors/step",
            quiet_below=limit if several else 0.05,
            why_not=reason,
        ),
        _held(baseline, current, thresholds),
    ]


def _held(baseline: RunRecord, current: RunRecord, thresholds: Thresholds) -> Counted:
    """What is alive between two steps: parameters, reference, optimizer state and what else is
    kept, exactly."""
    was, now = (
        held_bytes(side.exact.get("memory", {}), SETTLED_STEP) for side in (baseline, current)
    )
    share = thresholds.max_mem_increase_pct / 100
    return Counted(
        "live_memory",
        "memory",
        None if was is None else was / MB,
        None if now is None else now / MB,
        share * (was or 0) / MB,
        unit="MB",
        limit_pct=100 * share,
        quiet_below=0.02 * (was or 0) / MB,
        why_not="" if was and now else "the bytes of live tensors were not counted on both sides",
    )


def _calls(baseline: RunRecord, current: RunRecord, thresholds: Thresholds) -> list[Counted]:
    probe = [side.exact.get("calls", {}) for side in (baseline, current)]
    measured = [side.io for side in (baseline, current)]

    def pair(sides: Sequence[Mapping[str, Any]], key: str) -> tuple[float | None, float | None]:
        return sides[0].get(key), sides[1].get(key)

    probed, used = pair(probe, "tokenizer_calls"), pair(measured, "tokenizer_calls")
    calls = used if (used[0] or 0) != (used[1] or 0) else probed
    share = thresholds.max_tokenizer_calls_increase_pct / 100
    # A percentage of no call is none: then of one call per step.
    steps = len(current.stability.loss_values) if calls is used else current.exact.get("steps")
    usual = calls[0] or steps or 0
    written = [None if v is None else v / MB for v in pair(probe, "bytes_written")]
    return [
        Counted(
            "dataset_maps",
            "calls",
            *pair(measured, "dataset_maps_executed"),
            thresholds.max_dataset_maps_increase,
        ),
        Counted(
            "tokenizer_calls",
            "calls",
            *calls,
            share * usual,
            limit_pct=100 * share,
        ),
        Counted(
            "files_written",
            "calls",
            *pair(probe, "files_opened"),
            thresholds.max_files_increase,
        ),
        Counted(
            "bytes_written",
            "calls",
            written[0],
            written[1],
            thresholds.max_bytes_written_increase_mb,
            unit="MB",
            # The training's own log is part of it, and its words vary.
            quiet_below=0.05,
        ),
    ]
