"""Collect each gate's samples; turn gates into checks: status, interval, what would decide."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from canary.compare.checks import CHECKS, change, check_of, sides_with
from canary.compare.report import Check, CheckStatus, Records
from canary.compare.thresholds import Thresholds
from canary.compare.timing.cpu_time import cpu_samples
from canary.compare.timing.estimate import judged, sentence, signed_percent
from canary.compare.timing.excuses import crowding, lone_stall
from canary.compare.timing.lane import (
    DRIFTS,
    FAMILY_BUDGET,
    GATE_WEIGHTS,
    LARGEST,
    NO_MODEL_SHARE,
    Gate,
    Metric,
    Samples,
    estimate,
    gates_of,
    runner_unhealthy,
    time_samples,
    tokens_per_step,
    tolerance,
)
from canary.compare.timing.noise import NoiseModel

TIMING_GATES: tuple[Metric, ...] = tuple(GATE_WEIGHTS)


def percent(log_ratio: float) -> float:
    """Return a log ratio as a percentage."""
    return 100 * math.expm1(min(log_ratio, LARGEST))


def timing_checks(
    current: Records,
    baseline: Records,
    thresholds: Thresholds,
    *,
    paired: bool = False,
    noise: NoiseModel | None = None,
    anchor: Records = (),
    budget: float = FAMILY_BUDGET,
    gates: Sequence[Metric] = TIMING_GATES,
) -> list[Check]:
    """Return the checks of the gates and those derived from them, in the order shown."""
    has_gpu = any(record.env.get("gpus") for record in current)
    samples, refused = timing_samples(current, baseline, anchor, gates)
    wanted = {metric: found for metric, found in samples.items() if metric in gates}
    measured = noise is not None and all(noise.run_spread(DRIFTS.get(m, m)) for m in wanted)
    share = 1.0 if measured else NO_MODEL_SHARE

    def decided(
        samples: Mapping[Metric, Samples],
    ) -> tuple[dict[Metric, Gate], dict[Metric, Check]]:
        histories = {drift: samples[DRIFTS[drift]].baseline for drift in DRIFTS if drift in wanted}
        estimates = {
            metric: (one, estimate(one, paired, noise, has_gpu, histories.get(metric)))
            for metric, one in samples.items()
            if metric in wanted
        }
        gates = {gate.samples.metric: gate for gate in gates_of(estimates, share * budget)}
        return gates, {metric: _check(gate, thresholds) for metric, gate in gates.items()}

    found_gates, checks = decided(samples)
    mean = checks.get("step_time_mean")
    stall = lone_stall(current, baseline) if mean is not None and mean.failed else None
    if mean is not None and stall is not None:
        without = stall.left_out(samples["step_time_mean"])
        gates_left, rest = decided(samples | {"step_time_mean": without})
        if not rest["step_time_mean"].failed:
            excused = stall.excuse(mean, rest["step_time_mean"], len(current) > 1)
            found_gates, checks = gates_left, rest | {"step_time_mean": excused}
    for metric in DRIFTS:
        if metric in checks and checks[metric].status == "inconclusive":
            checks[metric] = replace(checks[metric], status="skip")
    for source, names in CLOCKS.items():
        unhealthy = runner_unhealthy(samples[source], noise) if source in samples else None
        if unhealthy is not None:
            checks |= {m: _unhealthy(checks[m], unhealthy) for m in names if m in checks}
    crowded = None if paired else crowding(current, baseline)
    if crowded is not None:
        checks = {m: crowded.judged(c) if m != "max_memory" else c for m, c in checks.items()}
    listed = [checks[metric] for metric in TIMING_GATES if metric in checks]
    listed.append(_tokens_per_sec(checks, found_gates, current, baseline, thresholds))
    return [*listed, *_gpu_utilization(current, baseline, thresholds), *refused]


CLOCKS: dict[Metric, tuple[Metric, ...]] = {
    "step_time_median": ("step_time_median", "step_time_mean", "step_time_drift"),
    "cpu_time": ("cpu_time", "cpu_time_drift"),
}
"""Gates whose baseline shows an unhealthy machine by its scatter: the gates left undecided then."""


def _check(gate: Gate, thresholds: Thresholds) -> Check:
    found, samples = gate.estimate, gate.samples
    limit = _limit_percent(samples, thresholds)
    if samples.metric == "max_memory":
        d = d_fail = math.log1p(limit / 100)
    else:
        d, d_fail = tolerance(gate, thresholds, limit)
    status = judged(found, gate.alpha, d, d_fail)
    words = f"{CHECKS[samples.metric].title} {signed_percent(percent(found.change))}"
    before = samples.scale(samples.baseline)
    after = before * math.exp(min(found.change, LARGEST))
    return check_of(
        samples.metric,
        status,
        sentence(words, status, found, gate.alpha, d, percent),
        baseline=before,
        current=after,
        unit=samples.unit,
        delta=after - before,
        delta_pct=percent(found.change),
        interval=(percent(found.lower(gate.alpha)), percent(found.upper())),
        threshold=percent(d),
        detectable=percent(found.detectable(gate.alpha)),
        noise=found.spread.source,
    )


def _limit_percent(samples: Samples, thresholds: Thresholds) -> float:
    if samples.kind == "cpu_time":
        return thresholds.max_cpu_time_increase_pct
    if samples.metric != "max_memory":
        return thresholds.max_step_time_increase_pct
    before = math.exp(min(statistics.fmean(samples.baseline), LARGEST))
    return min(thresholds.max_mem_increase_pct, 100 * thresholds.max_mem_increase_mb / before)


def _unhealthy(check: Check, ratio: float) -> Check:
    return replace(
        check,
        status="inconclusive",
        message=(
            f"not judged: the baseline's launches vary {ratio:.1f} times as much as the noise "
            "model says. Look for other work on the machine, or calibrate again"
        ),
        unjudged="scattered",
    )


def _mean(values: Sequence[float | None]) -> float | None:
    found = [value for value in values if value is not None and math.isfinite(value)]
    return statistics.fmean(found) if found and len(found) == len(values) else None


def _rate(values: Sequence[float | None]) -> float | None:
    """Return the geometric mean, as for step time, so that the rate and its change agree."""
    found = [value for value in values if value is not None and value > 0]
    return statistics.geometric_mean(found) if found and len(found) == len(values) else None


def _tokens_per_sec(
    checks: dict[Metric, Check],
    gates: dict[Metric, Gate],
    current: Records,
    baseline: Records,
    thresholds: Thresholds,
) -> Check:
    """Return the check of the recorded rate; its interval comes from step time, not a new test.

    Tokens and time cover timed steps only: profiled steps count in neither.
    """
    name: Metric = "step_time_mean" if "step_time_mean" in gates else "step_time_median"
    gate, source = gates.get(name), checks.get(name)
    before, after = (
        _rate([record.perf.approx_tokens_per_sec for record in side])
        for side in (baseline, current)
    )
    counted = [
        all(tokens_per_step(record, "input_tokens") for record in side)
        for side in (baseline, current)
    ]
    if gate is None or source is None or not before or not after or not all(counted):
        where = (
            "no step time or rate" if all(counted) else f"tokens: counted {sides_with(*counted)}"
        )
        return check_of("tokens_per_sec", "skip", where)
    drop = math.log(before) - math.log(after)
    stalled = _of_lone_stall(source, gate)
    more = gate.estimate.change + stalled - drop
    lo, hi = gate.estimate.lower(gate.alpha) - more, gate.estimate.upper() - more
    limit = -math.log1p(-thresholds.max_tps_drop_pct / 100)
    if thresholds.sensitivity == "adaptive":
        limit = tolerance(gate, thresholds, thresholds.max_tps_drop_pct)[1]
    status: CheckStatus = source.status
    if source.unjudged in (None, "stalled"):
        if lo > 0:
            status = "fail" if drop - stalled >= limit else "warn"
        elif hi < limit:
            status = "warn" if stalled > 0 else "pass"
        else:
            status = "inconclusive"
    why = f"derived from {CHECKS[name].title} and token counts"
    excused = stalled > 0 and status != "fail"
    if excused:
        why += ", with the one stalled step"
    if status == source.status == "inconclusive":
        why = f"undecided, because {CHECKS[name].title} is undecided"
    return check_of(
        "tokens_per_sec",
        status,
        f"tokens per second {signed_percent(percent(-drop))}, {why}",
        **change(before, after),
        unjudged="stalled" if excused else None,
        unit="tokens/s",
        interval=(percent(-hi - stalled), percent(-lo - stalled)),
        threshold=-100 * -math.expm1(-limit),
        detectable=percent(-gate.estimate.detectable(gate.alpha)),
        noise=gate.estimate.spread.source,
    )


def _of_lone_stall(mean: Check, rest: Gate) -> float:
    """Return the part of a mean's change, a log ratio, that is left out as one stalled step."""
    if mean.unjudged != "stalled":
        return 0.0
    return math.log1p((mean.delta_pct or 0.0) / 100) - rest.estimate.change


def _gpu_utilization(
    current: Records, baseline: Records, thresholds: Thresholds
) -> Iterator[Check]:
    before = _mean([record.perf.gpu_utilization_avg for record in baseline])
    after = _mean([record.perf.gpu_utilization_avg for record in current])
    if before is None or after is None:
        return
    limit = thresholds.max_gpu_utilization_drop
    dropped = before - after > limit
    words = f"GPU utilisation {before:.0f}% -> {after:.0f}%"
    words += f", a drop of more than {limit:g} points" if dropped else ""
    status: CheckStatus = "warn" if dropped else "pass"
    yield check_of(
        "gpu_utilization",
        status,
        words,
        **change(before, after),
        unit="%",
        threshold=-limit,
        scale="points",
    )


def timing_samples(
    current: Records, baseline: Records, anchor: Records, gates: Sequence[Metric]
) -> tuple[dict[Metric, Samples], list[Check]]:
    """Return the samples to judge, and the gates without samples as skipped checks."""
    samples: dict[Metric, Samples] = {}
    refused: list[Check] = []
    for metric in MEASURED:
        found = _samples_of(metric, current, baseline)
        if isinstance(found, Samples):
            samples[metric] = found
        elif found is not None and metric in gates:
            refused.append(found)
    for drift, metric in DRIFTS.items():
        since = _samples_of(metric, current, anchor) if anchor and metric in samples else None
        if isinstance(since, Samples):
            samples[drift] = replace(since, metric=drift)
    return samples, refused


MEASURED: tuple[Metric, ...] = ("step_time_median", "step_time_mean", "cpu_time", "max_memory")


def _samples_of(metric: Metric, current: Records, baseline: Records) -> Samples | Check | None:
    """Return the samples of a metric; its skipped check if a side lacks them; None for CPU time
    that is not to be judged here."""
    if metric == "max_memory":
        return _memory_samples(current, baseline)
    if metric == "cpu_time":
        found = cpu_samples(metric, current, baseline)
        if isinstance(found, Samples):
            return found
        words = f"CPU time per step: {found}"
        return check_of(metric, "skip", words) if found else None
    times = time_samples(metric, current, baseline)
    return times if times.current and times.baseline else _untimed(metric, current, baseline)


def _untimed(metric: Metric, current: Records, baseline: Records) -> Check:
    reasons = (record.unmeasured.get("perf.step_time") for record in (*current, *baseline))
    why = next(filter(None, reasons), "")
    sides = (all(r.perf.step_time.count for r in side) for side in (baseline, current))
    words = f"{CHECKS[metric].title}: recorded {sides_with(*sides)}"
    return check_of(metric, "skip", f"{words} ({why})" if why else words)


def _memory_samples(current: Records, baseline: Records) -> Samples | Check:
    """Return log MB of peak memory, one per record."""
    kinds = {r.perf.max_mem_kind for r in (*current, *baseline)}
    if len(kinds - {None}) > 1:
        words = "one side has peak device memory, the other peak resident memory"
        return check_of("max_memory", "inconclusive", words)
    peaks = [[r.perf.max_mem_mb or 0.0 for r in side] for side in (baseline, current)]
    before, now = (tuple(math.log(peak) for peak in side if peak > 0) for side in peaks)
    if None in kinds or not (before and now):
        words = f"peak memory: recorded {sides_with(*map(all, peaks))}"
        return check_of("max_memory", "skip", words)
    return Samples("max_memory", now, before, f"{kinds.pop()}_memory", "MB")
