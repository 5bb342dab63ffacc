"""The GPU is idle part of the time, for any reason."""

from __future__ import annotations

from canary.record.bottlenecks.common import NO_GPU, Answer, on_gpu, unmeasured
from canary.record.types import Bottleneck, Evidence, RunRecord

NAME = "gpu_utilization"
GOOD, FAIR = 85.0, 60.0
"""Percent; below FAIR it is a bottleneck."""


def judge(record: RunRecord) -> Answer:
    """Judge by NVML's mean while the launch trained."""
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
        advice="see the other bottlenecks; if there is none, profile some steps (profiler.enabled)",
    )
