"""The host launches kernels more slowly than the GPU runs them."""

from __future__ import annotations

from canary.record.bottlenecks.common import NO_GPU, Answer, on_gpu, percent, unmeasured
from canary.record.types import Bottleneck, Evidence, RunRecord

NAME = "host_bound_launches"
CPU_OVER_GPU = 2.0
"""CPU time of the profiled steps over device time."""
ONE_CORE = 0.90
"""Share of the step in which the training thread is on its core."""
IDLE_BELOW = 60.0
"""Percent of GPU utilisation."""


def judge(record: RunRecord) -> Answer:
    """Judge by the profile if there is one, else by a busy thread and an idle GPU."""
    if not on_gpu(record):
        return NO_GPU
    profiler = record.profiler
    if profiler.cpu_time_total_ms and profiler.cuda_time_total_ms:
        # A host that waits for its device is not the bottleneck.
        busy_ms = profiler.cpu_time_total_ms - (profiler.host_waits_ms or 0.0)
        return _by_profile(busy_ms / profiler.cuda_time_total_ms, record)
    busy, utilization = record.host.main_cpu_seconds_per_step, record.perf.gpu_utilization_avg
    if busy is None or utilization is None:
        return unmeasured(record, "perf.gpu_utilization_avg", "host")
    share = busy / record.perf.step_time.mean
    if share < ONE_CORE or utilization >= IDLE_BELOW:
        return None
    return _found(
        [
            percent("step time with the training thread on its core", share),
            Evidence(what="GPU utilisation", value=utilization, unit="%"),
        ],
        1 - utilization / 100,
    )


def _by_profile(ratio: float, record: RunRecord) -> Answer:
    if ratio < CPU_OVER_GPU:
        return None
    evidence = [
        Evidence(what="CPU time without waits over device time, profiled steps", value=ratio)
    ]
    utilization = record.perf.gpu_utilization_avg
    if utilization is not None:
        evidence.append(Evidence(what="GPU utilisation", value=utilization, unit="%"))
    return _found(evidence, 1 - 1 / ratio)


def _found(evidence: list[Evidence], cost: float) -> Bottleneck:
    return Bottleneck(
        name=NAME,
        severity="bottleneck",
        cost=cost,
        evidence=evidence,
        advice="give the GPU more work per kernel launch: larger micro-batches, fused kernels, "
        "torch.compile, a fused optimizer",
    )
