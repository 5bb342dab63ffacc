"""Collect the samples of each gate, and skip the gates that have none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from canary.compare.checks import check_of
from canary.compare.report import Check
from canary.compare.timing.cpu_time import cpu_samples, measures_cpu, on_cpu
from canary.compare.timing.lane import DRIFTS, Metric, Samples, memory_samples, time_samples
from canary.compare.timing.noise import NoiseModel
from canary.record.types import RunRecord


def timing_samples(
    current: Sequence[RunRecord],
    baseline: Sequence[RunRecord],
    anchor: Sequence[RunRecord],
    paired: bool,
    gates: Sequence[Metric],
) -> tuple[dict[Metric, Samples], list[Check]]:
    """Return the samples to judge, and the gates without samples as skipped checks."""
    samples: dict[Metric, Samples] = {}
    refused: list[Check] = []
    for metric in ("step_time_median", "step_time_mean"):
        samples[metric] = time_samples(metric, current, baseline)
    if on_cpu((*current, *baseline)):
        found = cpu_samples("cpu_time", current, baseline, paired)
        if isinstance(found, Samples):
            samples["cpu_time"] = found
        elif "cpu_time" in gates and any(map(measures_cpu, (*current, *baseline))):
            words = f"CPU time per step: {found}"
            refused.append(check_of("cpu_time", "skip", words))
    memory = memory_samples(current, baseline)
    if memory is not None:
        samples["max_memory"] = memory
    elif "max_memory" in gates:
        refused.append(_no_memory(current, baseline))
    for drift, metric in DRIFTS.items():
        if anchor and metric in samples:
            since = _since(metric, current, anchor)
            if since is not None:
                samples[drift] = replace(since, metric=drift)
    return samples, refused


def _since(
    metric: Metric, current: Sequence[RunRecord], anchor: Sequence[RunRecord]
) -> Samples | None:
    if metric != "cpu_time":
        return time_samples(metric, current, anchor)
    found = cpu_samples(metric, current, anchor, paired=False)
    return found if isinstance(found, Samples) else None


def all_known(noise: NoiseModel, wanted: Iterable[Metric]) -> bool:
    """Return whether the noise model covers all of these gates."""
    return all(noise.run_spread(DRIFTS.get(metric, metric)) for metric in wanted)


def _no_memory(current: Sequence[RunRecord], baseline: Sequence[RunRecord]) -> Check:
    kinds = {r.perf.max_mem_kind for r in (*current, *baseline)} - {None}
    if len(kinds) > 1:
        words = "one side has peak device memory, the other peak resident memory"
        return check_of("max_memory", "inconclusive", words)
    return check_of("max_memory", "skip", "peak memory was not recorded on both sides")
