"""How the counts of the work done are taken from two records, and how far each may rise. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from canary.compare.checks import CHECKS
from canary.compare.exact.growth import held_bytes, tensor_growth
from canary.compare.exact.micro_batches import same_size
from canary.compare.thresholds import Thresholds
from canary.record.exact import Exact, LiveMemory, Micro, Work
from canary.record.types import RunRecord

SETTLED_STEP = 3
"""Live tensors are followed from here: the first steps make the optimizer's state."""
MB = 2**20


Taken: TypeAlias = "Callable[[Count, RunRecord, RunRecord, Thresholds], Counted]"


@dataclass(frozen=True)
class Count:
    """A count of the work done, as a row of the table `COUNTS`."""

    stage: str
    name: str
    """Of its check, whose title says what is counted."""
    read: Callable[[RunRecord], float | None]
    """Where the record has it."""
    limit: Callable[[Thresholds], float]
    """How far it may rise, in its unit or in percent of the baseline."""
    percent: bool = False
    unit: str = ""
    quiet_below: float = 0.0
    """Differences up to this are not worth a word."""
    taken: Taken | None = None
    """How it is taken, where that is not just reading it."""

    @property
    def words(self) -> str:
        """What is counted."""
        return CHECKS[self.name].title

    def of(self, baseline: RunRecord, current: RunRecord, thresholds: Thresholds) -> Counted:
        """The count of both sides."""
        if self.taken is not None:
            return self.taken(self, baseline, current, thresholds)
        return plain(self, baseline, current, thresholds)


@dataclass(frozen=True)
class Counted:
    """One count on both sides and how far it may rise."""

    row: Count
    baseline: float | None
    current: float | None
    limit: float
    """In the unit of the count."""
    limit_pct: float | None = None
    """The limit in percent of the baseline, where it was given so."""
    quiet_below: float = 0.0
    why_not: str = ""
    """Reason to skip."""

    @property
    def delta(self) -> float | None:
        """What came; None where a side did not count."""
        if self.baseline is None or self.current is None:
            return None
        return self.current - self.baseline


def plain(row: Count, baseline: RunRecord, current: RunRecord, thresholds: Thresholds) -> Counted:
    """The count as it was read."""
    was, now = row.read(baseline), row.read(current)
    limit = row.limit(thresholds)
    if not row.percent:
        return Counted(row, was, now, limit, quiet_below=row.quiet_below)
    return Counted(row, was, now, limit / 100 * (was or 0), limit, row.quiet_below)


def in_step(row: Count, baseline: RunRecord, current: RunRecord, thresholds: Thresholds) -> Counted:
    """A count of one step: skipped where the sides counted other steps, or other sizes of one."""
    found = plain(row, baseline, current, thresholds)
    reason = _not_the_same_step(baseline, current)
    if not reason and row.percent and found.baseline == 0:
        reason = f"the baseline counted no {row.words}"
    return replace(found, why_not=reason)


def of_step(
    name: str,
    read: Callable[[Work], float | None],
    limit: Callable[[Thresholds], float],
    *,
    percent: bool = False,
    taken: Taken = in_step,
) -> Count:
    """The row of a count of one step."""

    def in_record(record: RunRecord) -> float | None:
        return read(_work(record.exact))

    return Count("work", name, in_record, limit, percent, taken=taken)


def host_reads(
    row: Count, baseline: RunRecord, current: RunRecord, thresholds: Thresholds
) -> Counted:
    """The reads of a micro-batch come with each further one, and are no new ones. A read in every
    micro-batch fails; a smaller number warns."""
    step = _work(current.exact).get("step", 1)
    was_cut, now_cut = (max(1, len(_micro(side, step))) for side in (baseline, current))
    found = in_step(row, baseline, current, thresholds)
    further = max(0, now_cut / was_cut - 1) * (found.baseline or 0)
    return replace(found, limit=further + max(0, found.limit * now_cut - 1))


def _work(exact: Exact) -> Work:
    return exact.get("work", {})


def _micro(record: RunRecord, step: int) -> list[Micro]:
    """The micro-batches of a step; of several ranks those of the first, whose work is counted."""
    batches = record.exact.get("batches", [])
    of_step = batches[step - 1] if 0 < step <= len(batches) else []
    return [micro for micro in of_step if not micro.get("rank")]


def _not_the_same_step(baseline: RunRecord, current: RunRecord) -> str:
    """Why the counted steps cannot be compared; empty where they can."""
    before, after = _work(baseline.exact), _work(current.exact)
    if not before or not after:
        return "the work of a step was not counted on both sides"
    if before.get("step") != after.get("step"):
        return "another step was counted"
    step = after.get("step", 1)
    if not same_size(_micro(baseline, step), _micro(current, step)):
        return f"the batches of the counted step {step} have other shapes"
    return ""


def _memory(record: RunRecord) -> LiveMemory:
    return record.exact.get("memory", {})


def _settled(record: RunRecord) -> list[int]:
    return _memory(record).get("live_tensors", [])[SETTLED_STEP - 1 :]


def growth_of_live_tensors(record: RunRecord) -> float | None:
    """Tensors more alive after each step; None of too few steps."""
    counts = _settled(record)
    return round(tensor_growth(counts), 3) if len(counts) >= 3 else None


def live_tensors(
    row: Count, baseline: RunRecord, current: RunRecord, thresholds: Thresholds
) -> Counted:
    """Of several ranks, the threads that exchange gradients let go of their buffers when they
    please."""
    found = plain(row, baseline, current, thresholds)
    if None in (found.baseline, found.current):
        return replace(found, why_not="too few probe steps to follow live tensors")
    several = any(side.ranks for side in (baseline, current))
    return replace(found, quiet_below=found.limit) if several else found


def held_mb(record: RunRecord) -> float | None:
    """What is alive between two steps: parameters, reference, optimizer state and what else is
    kept, exactly."""
    held = held_bytes(_memory(record), SETTLED_STEP)
    return None if held is None else held / MB


def live_memory(
    row: Count, baseline: RunRecord, current: RunRecord, thresholds: Thresholds
) -> Counted:
    """A fiftieth of it is not worth a word."""
    found = plain(row, baseline, current, thresholds)
    if found.baseline and found.current:
        return replace(found, quiet_below=0.02 * found.baseline)
    return replace(found, why_not="the bytes of live tensors were not counted on both sides")


def tokenizer_calls(
    row: Count, baseline: RunRecord, current: RunRecord, thresholds: Thresholds
) -> Counted:
    """Those of the measured launches where they differ, otherwise those of the probes. A percentage
    of no call is none: then of one call per step."""
    found = plain(row, baseline, current, thresholds)
    measured = [side.io.get("tokenizer_calls") for side in (baseline, current)]
    steps: int | None = current.exact.get("steps")
    if (measured[0] or 0) != (measured[1] or 0):
        found = replace(found, baseline=measured[0], current=measured[1])
        steps = len(current.stability.loss_values)
    return replace(found, limit=row.limit(thresholds) / 100 * (found.baseline or steps or 0))


def written_mb(record: RunRecord) -> float | None:
    """Of the probe."""
    written = record.exact.get("calls", {}).get("bytes_written")
    return None if written is None else written / MB
