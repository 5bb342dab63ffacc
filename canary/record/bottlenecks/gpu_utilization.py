"""The GPU is idle for part of the time, whatever the cause."""

from __future__ import annotations

from canary.record.bottlenecks.common import NO_GPU, Answer, on_gpu, unmeasured
from canary.record.types import Bottleneck, Evidence, RunRecord

NAME = "gpu_utilization"
GOOD, FAIR = 85.0, 60.0
"""Percent: over 85 is good, 60 to 85 fair, under 60 a bottleneck."""


def judge(record: RunRecord) -> Answer:
    """By NVML's mean over the measured launch, its start-up included."""
    if not on_gpu(record):
        return NO_GPU
    utilization = record.perf.gpu_utilization_avg
    if utilization is None:
        return unmeasured(record, "perf.gpu_utilization_avg")
    if utilization > GOOD:
        return None
    return Bottleneck(
        name=NAME,
        severity="watch" if utilization >= FAIR else "bottleneck",
        cost=0.0,
        evidence=[Evidence(what="GPU utilisation", value=utilization, unit="%")],
        advice="see what else is named here; without any, profile some steps (profiler.enabled)",
    )
