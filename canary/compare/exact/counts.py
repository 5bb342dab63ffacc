"""Counts of work in two records, how far each may rise, and whether live tensors grow. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import TypeAlias

from canary.compare.checks import CHECKS, sides_with
from canary.compare.exact.inputs_stages import is_rollout, same_size
from canary.compare.thresholds import Thresholds
from canary.record.exact import Exact, LiveMemory, Micro, Work
from canary.record.types import RunRecord

SETTLED_STEP = 3
"""Live tensors are compared from this step on: earlier steps create the optimizer's state."""
MB = 2**20


Taken: TypeAlias = "Callable[[Count, RunRecord, RunRecord, Thresholds], Counted]"


@dataclass(frozen=True)
class Count:
    """A count of work, listed in `COUNTS`."""

    stage: str
    name: str
    """The name of its check."""
    read: Callable[[RunRecord], float | None]
    limit: Callable[[Thresholds], float]
    """How far it may rise, in its unit or in percent of the baseline."""
    percent: bool = False
    unit: str = ""
    quiet_below: float = 0.0
    """Differences up to this are not reported."""
    taken: Taken | None = None
    """Compares both sides, if reading them is not enough."""

    @property
    def words(self) -> str:
        return CHECKS[self.name].title

    def of(self, baseline: RunRecord, current: RunRecord, thresholds: Thresholds) -> Counted:
        """Return the count of both sides."""
        if self.taken is not None:
            return self.taken(self, baseline, current, thresholds)
        return plain(self, baseline, current, thresholds)


@dataclass(frozen=True)
class Counted:
    """One count on both sides, and how far it may rise."""

    row: Count
    baseline: float | None
    current: float | None
    limit: float
    """In the unit of the count."""
    limit_pct: float | None = None
    """The limit in percent of the baseline, if the config sets it so."""
    quiet_below: float = 0.0
    why_not: str = ""
    """Reason to skip."""

    @property
    def delta(self) -> float | None:
        """current - baseline; None if a side did not count."""
        if self.baseline is None or self.current is None:
            return None
        return self.current - self.baseline


def plain(row: Count, baseline: RunRecord, current: RunRecord, thresholds: Thresholds) -> Counted:
    """Return the count as the records hold it."""
    was, now = row.read(baseline), row.read(current)
    limit = row.limit(thresholds)
    if not row.percent:
        return Counted(row, was, now, limit, quiet_below=row.quiet_below)
    return Counted(row, was, now, limit / 100 * (was or 0), limit, row.quiet_below)


def in_step(row: Count, baseline: RunRecord, current: RunRecord, thresholds: Thresholds) -> Counted:
    """Return the count of one step; skipped if the sides counted different steps or other data."""
    found = plain(row, baseline, current, thresholds)
    reason = _not_the_same_step(baseline, current) or _of_other_data(found, baseline, current)
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
    """Make a `Count` of one step's work."""

    def in_record(record: RunRecord) -> float | None:
        return read(_work(record.exact))

    return Count("work", name, in_record, limit, percent, taken=taken)


def host_reads(
    row: Count, baseline: RunRecord, current: RunRecord, thresholds: Thresholds
) -> Counted:
    """Allow the reads of added micro-batches: one new read per micro-batch fails, fewer warn."""
    step = _work(current.exact).get("step", 1)
    was_cut, now_cut = (max(1, len(_micro(side, step))) for side in (baseline, current))
    found = in_step(row, baseline, current, thresholds)
    further = max(0, now_cut / was_cut - 1) * (found.baseline or 0)
    return replace(found, limit=further + max(0, found.limit * now_cut - 1))


def _work(exact: Exact) -> Work:
    return exact.get("work", {})


def _micro(record: RunRecord, step: int) -> list[Micro]:
    """Return the micro-batches of a step on rank 0, whose work is counted."""
    batches = record.exact.get("batches", [])
    of_step = batches[step - 1] if 0 < step <= len(batches) else []
    return [micro for micro in of_step if not micro.get("rank")]


def _not_the_same_step(baseline: RunRecord, current: RunRecord) -> str:
    """Return why the counted steps cannot be compared; empty if they can."""
    before, after = _work(baseline.exact), _work(current.exact)
    if not before or not after:
        return f"the work of a step: counted {sides_with(before, after)}"
    return "" if before.get("step") == after.get("step") else "the sides counted different steps"


OF_TOKENS = ("flops", "tokens_fed")
"""Counts that depend on the length of the rows."""


def _of_other_data(found: Counted, baseline: RunRecord, current: RunRecord) -> str:
    """Return why the counted steps cannot be compared; empty if they can.

    They train on the same rows, or on as many tokens. Most counts need only as many rows; in a
    rollout all depend on the lengths."""
    step = _work(current.exact).get("step", 1)
    sides = [_micro(side, step) for side in (baseline, current)]
    if same_size(*sides):
        return ""
    rows, tokens = ([size(side) for side in sides] for size in (_rows, _tokens))
    if not is_rollout(current):
        as_many_rows = rows[0] == rows[1] and found.row.name not in OF_TOKENS
        if as_many_rows or (tokens[0] and tokens[0] == tokens[1]):
            return ""
    sizes = [
        f"{was:,} -> {now:,} {unit}"
        for (was, now), unit in ((rows, "rows"), (tokens, "tokens"))
        if was != now
    ]
    data = f"step {step} trains on other data: {', '.join(sizes) or 'other lengths'}"
    if not found.delta:
        return data
    return f"{found.row.words}: {found.baseline:,.6g} -> {found.current:,.6g}, but {data}"


def _rows(micro_batches: Iterable[Micro]) -> int:
    """Return the rows of a step: of each micro-batch the longest first dimension."""
    return sum(
        max((shape[0] for shape in micro.get("shapes", {}).values() if shape), default=0)
        for micro in micro_batches
    )


def _tokens(micro_batches: Iterable[Micro]) -> int:
    return sum(micro.get("input_tokens", 0) for micro in micro_batches)


def _memory(record: RunRecord) -> LiveMemory:
    return record.exact.get("memory", {})


def _settled(record: RunRecord) -> list[int]:
    return _memory(record).get("live_tensors", [])[SETTLED_STEP - 1 :]


def growth_of_live_tensors(record: RunRecord) -> float | None:
    """Return how many more tensors are alive after each step; None with too few steps."""
    counts = _settled(record)
    return round(tensor_growth(counts), 3) if len(counts) >= 3 else None


def live_tensors(
    row: Count, baseline: RunRecord, current: RunRecord, thresholds: Thresholds
) -> Counted:
    """Count live tensors; with several ranks without warnings, as communication threads free
    buffers at random times."""
    found = plain(row, baseline, current, thresholds)
    if None in (found.baseline, found.current):
        return replace(found, why_not="too few steps of the look to compare live tensors")
    several = any(side.ranks for side in (baseline, current))
    return replace(found, quiet_below=found.limit) if several else found


NO_MEMORY_MB = 0.1
"""A smaller change of live memory matters to nobody, whatever its share of a tiny model."""


def held_mb(record: RunRecord) -> float | None:
    """Return the exact MB alive between two steps: parameters, optimizer state and all else."""
    held = held_bytes(_memory(record), SETTLED_STEP)
    return None if held is None else held / MB


def live_memory(
    row: Count, baseline: RunRecord, current: RunRecord, thresholds: Thresholds
) -> Counted:
    """Report no change of 2% or less, or of less than `NO_MEMORY_MB`."""
    found = plain(row, baseline, current, thresholds)
    if found.baseline and found.current:
        return replace(
            found,
            limit=max(found.limit, NO_MEMORY_MB),
            limit_pct=found.limit_pct if found.limit >= NO_MEMORY_MB else None,
            quiet_below=max(0.02 * found.baseline, NO_MEMORY_MB),
        )
    where = sides_with(found.baseline, found.current)
    return replace(found, why_not=f"the bytes of live tensors: counted {where}")


def tokenizer_calls(
    row: Count, baseline: RunRecord, current: RunRecord, thresholds: Thresholds
) -> Counted:
    """Compare the calls of the whole trainings if they differ, otherwise those of the looks.

    A baseline without calls has no percentage: the limit is then a share of one call per step. A
    map whose result one side found in the user's cache called no tokenizer there."""
    found = plain(row, baseline, current, thresholds)
    whole = [side.io.get("tokenizer_calls") for side in (baseline, current)]
    steps: int | None = current.exact.get("steps")
    if (whole[0] or 0) != (whole[1] or 0):
        found = replace(found, baseline=whole[0], current=whole[1])
        steps = len(current.stability.loss_values)
    hits = [side.io.get("dataset_cache_hits") for side in (baseline, current)]
    if hits[0] != hits[1]:
        found = replace(found, why_not="one side found more mapped rows in the cache of datasets")
    return replace(found, limit=row.limit(thresholds) / 100 * (found.baseline or steps or 0))


def written_mb(record: RunRecord) -> float | None:
    """Return the MB that the look wrote."""
    written = record.exact.get("calls", {}).get("bytes_written")
    return None if written is None else written / MB


def slope(values: Sequence[float]) -> float:
    """Return the least-squares slope per step of equally spaced values."""
    count = len(values)
    centre = (count - 1) / 2
    spread = sum((i - centre) ** 2 for i in range(count))
    return sum((i - centre) * value for i, value in enumerate(values)) / spread if spread else 0.0


def tensor_growth(counts: Sequence[float]) -> float:
    """Return how many tensors per step stay alive, 0 if the count settles.

    The larger of median and slope: a single release lowers only the slope, and the median misses
    a leak every few steps."""
    typical = median(after - before for before, after in pairwise(counts))
    return max(0.0, typical, slope(counts))


def held_bytes(memory: LiveMemory, settled_step: int) -> float | None:
    """Return the bytes alive between two steps, including those from before training.

    None if the look did not count them or had too few steps."""
    steps = memory.get("live_bytes", [])[settled_step - 1 :]
    start = memory.get("start_bytes")
    return None if start is None or not steps else start + float(median(steps))
