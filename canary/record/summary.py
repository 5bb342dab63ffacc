"""The record's figures, from the rows of `steps.jsonl`. Pure."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

from canary.record.alert import WORST_FIRST
from canary.record.curves import curves_of, gated_metrics
from canary.record.host import host_of, on_core_step_time_s
from canary.record.jsonio import number
from canary.record.ranks import ByRank, describe_ranks, merged_rows
from canary.record.spikes import stall_of
from canary.record.step_row import TOKEN_TOTALS, Bytes, Row, RowAlert, is_timed
from canary.record.types import (
    MOST_ALERTS,
    PHASES,
    AlertSummary,
    Distribution,
    Growth,
    Launch,
    RunRecord,
    Stability,
)

MIN_STEPS = 5
"""Timed steps after warm-up that a run needs to be judged."""


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of an ordered sample, linear between neighbours (numpy's default)."""
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def distribution(values: Iterable[float]) -> Distribution:
    """Return order statistics of a sample's finite values."""
    ordered = sorted(value for value in values if math.isfinite(value))
    if not ordered:
        return Distribution()
    median = percentile(ordered, 0.5)
    return Distribution(
        count=len(ordered),
        mean=statistics.fmean(ordered),
        median=median,
        p50=median,
        p95=percentile(ordered, 0.95),
        p99=percentile(ordered, 0.99),
        min=ordered[0],
        max=ordered[-1],
        std=statistics.stdev(ordered) if len(ordered) > 1 else 0.0,
    )


def _numbers(rows: Iterable[Row], key: str) -> list[float]:
    values = (number(row.get(key)) for row in rows)
    return [float(value) for value in values if value is not None]


def _largest(rows: Iterable[Row], key: str) -> int | None:
    return max(map(int, _numbers(rows, key)), default=None)


def _rate(
    rows: Sequence[Row], key: Literal["samples", "input_tokens", "completion_tokens"]
) -> float | None:
    pairs = [(amount, row["wall_s"]) for row in rows if (amount := row.get(key)) is not None]
    wall = sum(seconds for _, seconds in pairs)
    total = sum(amount for amount, _ in pairs)
    # A loop without batches counts none: that is no rate of zero.
    return total / wall if wall > 0 and total > 0 else None


def is_bad(row: Row, test: Any) -> bool:
    """Return whether `test` (isnan, isinf) holds for the step's loss or a micro-batch's loss."""
    losses = [row.get("loss"), *row.get("micro_losses", [])]
    return any(loss is not None and test(float(number(loss))) for loss in losses)


def stability(rows: Sequence[Row]) -> Stability:
    """Return counts and series over all steps of one launch, warm-up included."""
    # A row without the key holds no training step: another program wrote its evaluation there.
    given = [row.get("loss") for row in rows if "loss" in row]
    reported = any(loss is not None for loss in given)  # A loop may report no loss.
    losses = [math.nan if loss is None else float(number(loss)) for loss in given if reported]
    nan_at = [row["step"] for row in rows if is_bad(row, math.isnan)]
    inf_at = [row["step"] for row in rows if is_bad(row, math.isinf)]
    return Stability(
        nan_steps=len(nan_at),
        inf_steps=len(inf_at),
        nan_at=nan_at,
        inf_at=inf_at,
        loss_values=losses,
        grad_norm_values=[
            None if row.get("grad_norm") is None else float(number(row["grad_norm"]))
            for row in rows
            if "grad_norm" in row or "loss" in row
        ],
        final_loss=losses[-1] if losses else None,
        loss_diverged=diverged(losses),
    )


def diverged(losses: Sequence[float]) -> bool:
    """Return whether the last loss is not finite, or the last tenth's mean is over 1.5 times the
    first tenth's. Losses that start near or below zero (policy objectives) have no such scale."""
    if not losses:
        return False
    if not math.isfinite(losses[-1]):
        return True
    finite = [loss for loss in losses if math.isfinite(loss)]
    tenth = max(1, len(finite) // 10)
    start, end = statistics.fmean(finite[:tenth]), statistics.fmean(finite[-tenth:])
    return len(finite) >= 10 and start > 1e-3 and end > 1.5 * start


STEADY_SHARE = 0.95


def _steady_mean(values: Sequence[float]) -> float:
    """Return the mean of values that are cut to their 95th percentile."""
    most = percentile(sorted(values), STEADY_SHARE)
    return statistics.fmean(min(value, most) for value in values)


def phase_means(
    rows: Sequence[Row],
    key: Literal["phases", "phases_cpu"] = "phases",
    mean: Callable[[Sequence[float]], float] = statistics.fmean,
) -> dict[str, float]:
    """Return mean seconds per step for each phase; an empty dictionary if no row has `key`."""
    known = [row[key] for row in rows if key in row]
    if not known:
        return {}
    return {name: mean([phases.get(name, 0.0) for phases in known]) for name in PHASES}


NOT_TRAINING = ("checkpoint", "evaluation")
"""Phases that come only now and then and belong to no step."""


def cpu_s_per_step(rows: Sequence[Row]) -> float | None:
    """Return `Launch.cpu_s_per_step`. It is no median: data loaders work ahead in bursts, and some
    work comes every few steps."""
    known = [row for row in rows if row.get("cpu_s") is not None]
    bare = [row for row in known if not any(row["phases"].get(name) for name in NOT_TRAINING)]
    seconds = _numbers(bare or known, "cpu_s")
    return _steady_mean(seconds) if seconds else None


def timed(rows: Iterable[Row], warmup: int) -> list[Row]:
    """Return the rows whose times count: after warm-up, and neither looked at nor profiled."""
    return [
        row
        for row in rows
        if row["step"] > warmup and row.get("wall_s") is not None and is_timed(row)
    ]


def last_untimed(rows: Sequence[Row], warmup: int) -> int:
    """Return the last step that the speeds leave out: the look, and `warmup` steps after it."""
    looked = [row["step"] for row in rows if row.get("look")]
    first = rows[0]["step"] if rows else 1
    return max(looked, default=first - 1) + warmup


def untimed_steps(record: RunRecord) -> int:
    """Return how many first steps of each launch the speeds leave out."""
    looked = record.launches[0].look_steps if record.launches else 0
    warmup = record.config.get("metrics_warmup_steps")
    return looked + (warmup if isinstance(warmup, int) else 0)


def launch_timing(launch: Launch, rows: Sequence[Row], warmup: int) -> Launch:
    """Return the launch with its timing, from its rows after warm-up."""
    steady = timed(rows, warmup)
    times = distribution(row["wall_s"] for row in steady)
    return launch.model_copy(
        update={
            "steps": len(rows),
            "look_steps": sum(bool(row.get("look")) for row in rows),
            "mean_step_time_s": times.mean if times.count else None,
            "median_step_time_s": times.median if times.count else None,
            "tokens_per_sec": _rate(steady, "input_tokens"),
            "phases": phase_means(steady),
            "phases_steady": phase_means(steady, mean=_steady_mean),
            "phases_cpu": phase_means(steady, "phases_cpu"),
            "cpu_s_per_step": cpu_s_per_step(steady),
            "on_core_step_time_s": on_core_step_time_s(steady),
            "stall": stall_of(steady),
        }
    )


def _spike(rows: Sequence[Row]) -> dict[str, int | None]:
    """Return the typical memory of one launch and the step of its peak."""
    key: Bytes = "peak_bytes" if _numbers(rows, "peak_bytes") else "rss_bytes"
    known = [row for row in rows if row.get(key) is not None]
    if not known:
        return {"typical_bytes": None, "peak_step": None}
    ordered = sorted(_numbers(known, key))
    at_peak = max(known, key=lambda row: float(row[key] or 0))["step"]
    return {"typical_bytes": int(percentile(ordered, 0.5)), "peak_step": at_peak}


GROWTH_BLOCKS = 10
T_975 = 2.306
"""Student's t, two-sided 95%, for the slope through ten blocks (8 degrees of freedom)."""


def memory_growth(rows: Sequence[Row]) -> Growth | None:
    """Return the slope of one launch's memory; None with fewer than three steps per block."""
    kind: Literal["device", "resident"] = "device"
    values = _numbers(rows, "allocated_bytes")
    if not values:
        kind, values = "resident", _numbers(rows, "rss_bytes")
    size = len(values) // GROWTH_BLOCKS
    if size < 3:
        return None
    blocks = [statistics.fmean(values[i * size : (i + 1) * size]) for i in range(GROWTH_BLOCKS)]
    places = [size * (i + 0.5) for i in range(GROWTH_BLOCKS)]
    slope, intercept = statistics.linear_regression(places, blocks)
    residual = sum((y - intercept - slope * x) ** 2 for x, y in zip(places, blocks, strict=True))
    centre = statistics.fmean(places)
    error = math.sqrt(
        residual / (GROWTH_BLOCKS - 2) / sum((place - centre) ** 2 for place in places)
    )
    return Growth(
        kind=kind,
        bytes_per_step=slope,
        low=slope - T_975 * error,
        high=slope + T_975 * error,
        steps=len(values),
    )


def without_profiler(rows: Sequence[Row]) -> Sequence[Row]:
    """Return one launch's steps that were not profiled, with the resident memory of the training
    alone: if every step after the profiled window has more memory than every step before it, the
    smallest difference is subtracted."""
    flagged = [row["step"] for row in rows if row.get("profiled")]
    plain = [row for row in rows if not row.get("profiled")]
    if not flagged or not plain:
        return rows
    before = [row for row in plain if row["step"] < flagged[0]]
    after = [row for row in plain if row["step"] > flagged[0]]
    was, now = (_numbers(side, "rss_bytes") for side in (before, after))
    extra = max(0.0, min(now) - max(was)) if was and now else 0.0
    lower = [
        row | {"rss_bytes": held - extra} if (held := row.get("rss_bytes")) else row
        for row in after
    ]
    return [*before, *(lower if extra else after)]


def unprofiled_stretch(rows: Sequence[Row]) -> Sequence[Row]:
    """Return the longest stretch without a profiled step. Part of the profiler's memory stays
    resident, so a line through both sides of its window would have a slope."""
    cuts = [place for place, row in enumerate(rows) if row.get("profiled")]
    ends = zip([-1, *cuts], [*cuts, len(rows)], strict=True)
    return max((rows[before + 1 : after] for before, after in ends), key=len)


def summarise(record: RunRecord, rows: Sequence[Row], warmup: int) -> RunRecord:
    """Return the record with all figures from the rows. Speeds, phases and RL metrics leave out
    the look, and `warmup` steps after it; stability figures count all steps."""
    warmup = last_untimed(rows, warmup)
    by_launch: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_launch[row["launch"]].append(row)
    first = by_launch[min(by_launch)] if by_launch else []
    # Without the look, whose copies take memory, unless no step follows it.
    after = ([row for row in one if not row.get("look")] or one for one in by_launch.values())
    unprofiled = [row for one in after for row in without_profiler(one)]
    steady = timed(rows, warmup)
    unmeasured = dict(record.unmeasured)
    if not steady and any(row["step"] > warmup and row.get("profiled") for row in rows):
        unmeasured["perf.step_time"] = "every step after the warm-up was profiled"
    record = record.model_copy(
        update={
            "perf": record.perf.model_copy(update=_speeds(steady) | _peak(unprofiled)),
            "unmeasured": unmeasured,
            "stability": stability(first),
            "phases": phase_means(steady),
            "memory": record.memory.model_copy(update=_memory(unprofiled, first, warmup)),
            "rl": _rl([row for row in rows if row["step"] > warmup]),
            "curves": curves_of(first, [*gated_metrics(record.config), *_named(record, first)]),
            "tokens": {
                key: int(sum(counted)) for key in TOKEN_TOTALS if (counted := _numbers(first, key))
            },
            "first_step": first[0]["step"] if first else record.first_step,
            "launches": [
                launch_timing(launch, by_launch.get(launch.index, []), warmup)
                for launch in record.launches
            ],
        }
    )
    return record.model_copy(update={"host": host_of(record, steady)})


def _named(record: RunRecord, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the metrics of an imported run that its preset names. No config says what will be
    judged in one that was imported by hand, so of that run also all others."""
    if record.source is None:
        return
    yield from record.source.names
    if "command" not in record.config:
        yield from sorted({name for row in rows for name in row.get("rl", {})})


def _speeds(steady: Sequence[Row]) -> dict[str, Any]:
    """Return step times, rates, and the percentage of time spent waiting for data."""
    wall = sum(row["wall_s"] for row in steady)
    split = [row["phases"] for row in steady if "phases" in row]
    data = sum(phases.get("data", 0.0) for phases in split)
    generated = _rate(steady, "completion_tokens")
    return {
        "step_time": distribution(row["wall_s"] for row in steady),
        "approx_tokens_per_sec": _rate(steady, "input_tokens"),
        "samples_per_sec": _rate(steady, "samples"),
        "seconds_per_completion_token": 1 / generated if generated else None,
        "dataloader_wait_pct": 100 * data / wall if wall and split else None,
    }


def _peak(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the largest memory of any step: the device's if one trained, else the process's."""
    for kind, key in (("device", "peak_bytes"), ("resident", "rss_bytes")):
        peak = _largest(rows, key)
        if peak is not None:
            return {"max_mem_mb": peak / 2**20, "max_mem_kind": kind}
    return {"max_mem_mb": None, "max_mem_kind": None}


def _memory(rows: Sequence[Row], first: Sequence[Row], warmup: int) -> dict[str, Any]:
    """Return all launches' peaks, and growth and typical memory of the first."""
    return {
        "peak_allocated_bytes": _largest(rows, "peak_bytes"),
        "peak_reserved_bytes": _largest(rows, "reserved_bytes"),
        "peak_rss_bytes": _largest(rows, "rss_bytes"),
        "growth": memory_growth(unprofiled_stretch([r for r in first if r["step"] > warmup])),
        **_spike([row for row in without_profiler(first) if row["step"] > warmup]),
        "alloc_retries": _largest(rows, "alloc_retries"),
    }


def summarise_ranks(record: RunRecord, by_rank: ByRank, warmup: int) -> RunRecord:
    """Summarise the rows of all ranks, and compare the ranks."""
    merged = merged_rows(by_rank)
    found = describe_ranks(by_rank, last_untimed(merged, warmup))
    for name in ("imbalance", "wait_s"):
        if name in found:
            found[name] = distribution(found[name]).model_dump()
    record = record.model_copy(update={"ranks": record.ranks | found})
    # From every rank: a step that one rank did not complete has no merged row.
    of_all = (row for rows in by_rank.values() for row in rows)
    return with_alerts(summarise(record, merged, warmup), of_all)


def with_alerts(record: RunRecord, rows: Iterable[Row]) -> RunRecord:
    """Return the record with the alerts of all ranks' measured rows, in order. An alert that
    several ranks raised at one step counts once. No detector watched an imported run."""
    if record.source is not None:
        return record
    found: dict[tuple[int, int, str], RowAlert] = {}
    for row in rows:
        for alert in row.get("alerts") or ():
            found.setdefault((int(row["launch"]), int(alert["step"]), alert["type"]), alert)
    alerts = [found[key] for key in sorted(found, key=lambda key: key[:2])]
    severities: Counter[str] = Counter(alert["severity"] for alert in alerts)
    summary = AlertSummary(
        total=len(alerts),
        by_category=dict(sorted(Counter(alert["category"] for alert in alerts).items())),
        by_severity={name: severities[name] for name in WORST_FIRST if severities[name]},
        latest=alerts[-1] if alerts else None,
    )
    return record.model_copy(update={"alerts": alerts[:MOST_ALERTS], "alert_summary": summary})


def _rl(rows: Sequence[Row]) -> dict[str, Distribution]:
    values: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        for name, value in row.get("rl", {}).items():
            values[name].append(float(number(value)))
    return {name: distribution(sample) for name, sample in sorted(values.items())}


def more_steps(record: RunRecord) -> str:
    """Return the remedy for a run with too few steps."""
    if record.first_step > 1:
        where = f"it resumed from a checkpoint at step {record.first_step - 1}"
        return f"{where}: remove the checkpoint, or raise max_steps"
    if record.config.get("exact"):
        return "it ended after its look: remove --exact, or `exact: true`"
    return "train more steps" if record.config.get("max_steps") is None else "raise max_steps"
