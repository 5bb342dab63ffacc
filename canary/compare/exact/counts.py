"""Counts of work in two records: the table of them, how far each may rise, and their checks.

Counts have no noise, so any difference is real. A rise above the limit fails, a smaller one warns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from canary.compare.checks import CHECKS, check_of, sides_with
from canary.compare.exact.inputs_stages import is_rollout, same_size
from canary.compare.report import Check, CheckStatus, Difference
from canary.compare.thresholds import Thresholds
from canary.record.digits import SHORTENED_FROM, significant
from canary.record.exact import Exact, LiveMemory, Micro, Work
from canary.record.types import RunRecord

SETTLED_STEP = 3
"""Live tensors are compared from this step on: earlier steps create the optimizer's state."""
MB = 2**20
NO_MEMORY_MB = 0.1
"""A smaller change of live memory matters to nobody, whatever its share of a tiny model."""
OF_TOKENS = ("flops", "tokens_fed")
"""Counts that depend on the length of the rows."""


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


@dataclass(frozen=True)
class Count:
    """A count of work. Its check's row in `CHECKS` names its limit, which is in percent of the
    baseline if its key says so."""

    stage: str
    name: str
    """The name of its check."""
    read: Callable[[RunRecord], float | None]
    unit: str = ""
    quiet_below: float = 0.0
    """Differences up to this are not reported."""
    adjusted: Callable[[Counted, RunRecord, RunRecord], Counted] = lambda found, *_: found
    """Compares both sides, if reading them is not enough."""

    @property
    def words(self) -> str:
        return CHECKS[self.name].title

    def of(self, baseline: RunRecord, current: RunRecord, thresholds: Thresholds) -> Counted:
        """Return the count of both sides."""
        was, now = self.read(baseline), self.read(current)
        (key,) = CHECKS[self.name].limits
        limit = float(getattr(thresholds, key))
        found = Counted(self, was, now, limit, quiet_below=self.quiet_below)
        if key.endswith("_pct"):
            found = replace(found, limit=limit / 100 * (was or 0), limit_pct=limit)
        if self.stage != "work" and baseline.exact.get("steps") != current.exact.get("steps"):
            return replace(found, why_not="the looks have other numbers of steps")
        return self.adjusted(found, baseline, current)


def _work(exact: Exact) -> Work:
    return exact.get("work", {})


def _in_step(found: Counted, baseline: RunRecord, current: RunRecord) -> Counted:
    """Return the count of one step; skipped if the sides counted different steps or other data."""
    before, after = _work(baseline.exact), _work(current.exact)
    if not before or not after:
        reason = f"the work of a step: counted {sides_with(before, after)}"
    elif before.get("step") != after.get("step"):
        reason = "the sides counted different steps"
    else:
        reason = _of_other_data(found, baseline, current)
    if not reason and found.limit_pct is not None and found.baseline == 0:
        reason = f"the baseline counted no {found.row.words}"
    return replace(found, why_not=reason)


def _host_reads(found: Counted, baseline: RunRecord, current: RunRecord) -> Counted:
    """Allow the reads of added micro-batches: one new read per micro-batch fails, fewer warn."""
    step = _work(current.exact).get("step", 1)
    was_cut, now_cut = (max(1, len(_micro(side, step))) for side in (baseline, current))
    found = _in_step(found, baseline, current)
    further = max(0, now_cut / was_cut - 1) * (found.baseline or 0)
    return replace(found, limit=further + max(0, found.limit * now_cut - 1))


def _micro(record: RunRecord, step: int) -> list[Micro]:
    """Return the micro-batches of a step on rank 0, whose work is counted."""
    batches = record.exact.get("batches", [])
    of_step = batches[step - 1] if 0 < step <= len(batches) else []
    return [micro for micro in of_step if not micro.get("rank")]


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
    return f"{found.row.words}: {_shown(found.baseline)} -> {_shown(found.current)}, but {data}"


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


def _growth_of_live_tensors(record: RunRecord) -> float | None:
    """Return how many more tensors are alive after each step; None with too few steps."""
    counts = _memory(record).get("live_tensors", [])[SETTLED_STEP - 1 :]
    return round(tensor_growth(counts), 3) if len(counts) >= 3 else None


def _live_tensors(found: Counted, baseline: RunRecord, current: RunRecord) -> Counted:
    """Count live tensors; with several ranks without warnings, as communication threads free
    buffers at random times."""
    if None in (found.baseline, found.current):
        return replace(found, why_not="too few steps of the look to compare live tensors")
    several = any(side.ranks for side in (baseline, current))
    return replace(found, quiet_below=found.limit) if several else found


def _held_mb(record: RunRecord) -> float | None:
    """Return the exact MB alive between two steps: parameters, optimizer state and all else. None
    if the look did not count them or had too few steps."""
    steps = _memory(record).get("live_bytes", [])[SETTLED_STEP - 1 :]
    start = _memory(record).get("start_bytes")
    return None if start is None or not steps else (start + float(median(steps))) / MB


def _live_memory(found: Counted, baseline: RunRecord, current: RunRecord) -> Counted:
    """Report no change of 2% or less, or of less than `NO_MEMORY_MB`."""
    if found.baseline and found.current:
        return replace(
            found,
            limit=max(found.limit, NO_MEMORY_MB),
            limit_pct=found.limit_pct if found.limit >= NO_MEMORY_MB else None,
            quiet_below=max(0.02 * found.baseline, NO_MEMORY_MB),
        )
    where = sides_with(found.baseline, found.current)
    return replace(found, why_not=f"the bytes of live tensors: counted {where}")


def _tokenizer_calls(found: Counted, baseline: RunRecord, current: RunRecord) -> Counted:
    """Compare the calls of the whole trainings if they differ, otherwise those of the looks.

    A baseline without calls has no percentage: the limit is then a share of one call per step. A
    map whose result one side found in the user's cache called no tokenizer there."""
    whole = [side.io.get("tokenizer_calls") for side in (baseline, current)]
    steps: int | None = current.exact.get("steps")
    lengths = {max((one.steps for one in side.launches), default=0) for side in (baseline, current)}
    if (whole[0] or 0) != (whole[1] or 0) and len(lengths) == 1:
        found = replace(found, baseline=whole[0], current=whole[1])
        steps = len(current.stability.loss_values)
    hits = [side.io.get("dataset_cache_hits") for side in (baseline, current)]
    if hits[0] != hits[1]:
        found = replace(found, why_not="one side found more mapped rows in the cache of datasets")
    return replace(found, limit=(found.limit_pct or 0) / 100 * (found.baseline or steps or 0))


def _written_mb(record: RunRecord) -> float | None:
    """Return the MB that the look wrote."""
    written = record.exact.get("calls", {}).get("bytes_written")
    return None if written is None else written / MB


def tensor_growth(counts: Sequence[float]) -> float:
    """Return how many tensors per step stay alive, 0 if the count settles.

    The larger of median and least-squares slope: a single release lowers only the slope, and the
    median misses a leak every few steps."""
    typical = median(after - before for before, after in pairwise(counts))
    middle = (len(counts) - 1) / 2
    spread = sum((place - middle) ** 2 for place in range(len(counts)))
    slope = sum((place - middle) * value for place, value in enumerate(counts)) / spread
    return max(0.0, typical, slope)


# fmt: off
COUNTS: tuple[Count, ...] = (
    Count("work", "tokens_fed", lambda r: _work(r.exact).get("tokens_fed"), adjusted=_in_step),
    Count("work", "host_reads", lambda r: _work(r.exact).get("host_reads"), adjusted=_host_reads),
    Count("work", "collectives", lambda r: _work(r.exact).get("collectives"), adjusted=_in_step),
    Count("work", "recompiles", lambda r: _work(r.exact).get("recompiles"), adjusted=_in_step),
    Count("work", "operators", lambda r: _work(r.exact).get("operator_total"), adjusted=_in_step),
    Count("work", "flops", lambda r: _work(r.exact).get("flops"), adjusted=_in_step),
    Count("memory", "live_tensors", _growth_of_live_tensors, "tensors/step", 0.05, _live_tensors),
    Count("memory", "live_memory", _held_mb, "MB", adjusted=_live_memory),
    Count("calls", "dataset_maps",
        lambda r: r.exact.get("calls", {}).get("dataset_maps_unhashable")),
    Count("calls", "tokenizer_calls", lambda r: r.exact.get("calls", {}).get("tokenizer_calls"),
        adjusted=_tokenizer_calls),
    Count("calls", "files_written", lambda r: r.exact.get("calls", {}).get("files_opened")),
    # Includes the log of the training, whose length varies.
    Count("calls", "bytes_written", _written_mb, "MB", 0.05),
)
# fmt: on


def work_checks(
    baseline: RunRecord, current: RunRecord, thresholds: Thresholds
) -> tuple[list[Check], list[Difference]]:
    """Return the checks of all counts, and their differences in order."""
    checks: list[Check] = []
    differences: list[tuple[bool, Difference]] = []
    for item in (count.of(baseline, current, thresholds) for count in COUNTS):
        checks.append(_check(item))
        status = checks[-1].status
        if status != "skip" and (status != "pass" or abs(item.delta or 0) > item.quiet_below):
            differences.append((status == "fail", _difference(item, baseline, current)))
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
    status: CheckStatus = "warn" if delta > item.quiet_below else "pass"
    if delta > item.limit:
        status = "fail"
    base = item.baseline or 0.0
    pct = 100 * delta / base if base > 0 else None
    size = f"{pct:+.1f}%" if pct is not None and abs(pct) < 1000 else f"{delta:+,.6g}"
    if status == "fail":
        limit = f"{item.limit:+,.6g} {row.unit.partition('/')[0]}".rstrip()
        size += f", limit {limit if item.limit_pct is None else f'{item.limit_pct:g}%'}"
    same = "equal" if delta == 0 else f"{_shown(base)} -> {_shown(item.current)} ({size})"
    return check_of(
        row.name,
        status,
        f"{row.words}: {same}",
        baseline=item.baseline,
        current=item.current,
        unit=row.unit,
        delta=delta,
        delta_pct=pct,
        threshold=item.limit if item.limit_pct is None else item.limit_pct,
        scale=row.unit if item.limit_pct is None else "%",
    )


def _shown(count: float | None) -> str:
    """Return a count as text: in full, and shortened from 10 million on."""
    if count is None:
        return "-"
    return significant(count, 6) if abs(count) >= SHORTENED_FROM else f"{count:,.6g}"


def _difference(item: Counted, baseline: RunRecord, current: RunRecord) -> Difference:
    detail = f"{item.row.words} {_shown(item.baseline)} -> {_shown(item.current)}"
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
    works = [_work(side.exact) for side in (baseline, current)]
    was, now = (work.get("operators", {}) for work in works)
    changes = {name: now.get(name, 0) - was.get(name, 0) for name in dict.fromkeys((*was, *now))}
    largest = sorted(changes.items(), key=lambda item: (-abs(item[1]), item[0]))[:3]
    before, after = (work.get("forwards") or 0 for work in works)
    if before and before != after:
        largest = [("forward passes", after - before), *largest]
    shown = ", ".join(f"{name} {change:+d}" for name, change in largest if change)
    return f" ({shown})" if shown else ""
