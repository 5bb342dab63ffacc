"""Bottlenecks of a GPU that computes less than it could."""

from __future__ import annotations

from canary.record.bottlenecks.common import (
    NO_GPU,
    Answer,
    NotJudged,
    band,
    gpu_memory_bytes,
    kernel_share,
    on_gpu,
    percent,
    unmeasured,
)
from canary.record.types import Bottleneck, Evidence, RunRecord

CPU_OVER_GPU = 2.0
"""CPU time of the profiled steps over device time."""
ONE_CORE = 0.90
"""Share of the step in which the training thread is on its core."""
IDLE_BELOW = 60.0
"""Percent of GPU utilisation."""


def host_bound_launches(record: RunRecord) -> Answer:
    """The host launches kernels more slowly than the GPU runs them.

    Judge by the profile if there is one, else by a busy thread and an idle GPU.
    """
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
    return _launch_bound(
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
    return _launch_bound(evidence, 1 - 1 / ratio)


def _launch_bound(evidence: list[Evidence], cost: float) -> Bottleneck:
    return Bottleneck(
        name="host_bound_launches",
        severity="bottleneck",
        cost=cost,
        evidence=evidence,
        advice="give the GPU more work per kernel launch: larger micro-batches, fused kernels, "
        "torch.compile, a fused optimizer",
    )


SMALL = 8
"""Rows of a micro-batch."""
BUSY = 60.0
"""A GPU with a lower utilisation, in percent, can do more work."""
FREE = 0.5
"""Share of the device's memory that is never used."""
WAITS_FOR_DATA = 25.0
"""Percent of the step; a device that waits for data gains nothing from larger batches."""


def small_batches(record: RunRecord) -> Answer:
    """Batches are too small to keep the GPU busy, and memory for larger ones is free.

    Judge by three conditions together: an idle device, free memory and few rows.
    """
    if not on_gpu(record):
        return NO_GPU
    utilization, rows = record.perf.gpu_utilization_avg, record.config.get("batch_size")
    if utilization is None:
        return unmeasured(record, "perf.gpu_utilization_avg")
    device, peak = gpu_memory_bytes(record), record.memory.peak_reserved_bytes
    if rows is None or device is None or peak is None:
        return NotJudged("the batch size or the device's memory is not known")
    free = 1 - peak / device
    fed = (record.perf.dataloader_wait_pct or 0.0) < WAITS_FOR_DATA
    if not (utilization < BUSY and rows <= SMALL and free >= FREE and fed):
        return None
    return Bottleneck(
        name="small_batches",
        severity="bottleneck",
        cost=1 - utilization / 100,
        evidence=[
            Evidence(what="rows per micro-batch", value=rows),
            Evidence(what="GPU utilisation", value=utilization, unit="%"),
            percent("free device memory", free),
        ],
        advice="raise batch_size, and lower gradient_accumulation_steps by the same factor",
    )


MEMORY_BOUND = (
    r"copy_|_to_copy|\badd|\bmul|\bdiv|\bsub|\bcat\b|norm|softmax|gelu|silu|dropout|fill_|zero_|where"
    r"|elementwise|Memcpy|Memset|embedding|index|gather"
)
"""Operators with few operations per byte, so not matrix products, attention or convolutions."""
BANDWIDTH_WATCH, BANDWIDTH_BOTTLENECK = 0.5, 0.7
"""Shares of the device time in such operators."""
MEMORY_BUSY = 60.0
"""Percent of time in which the device's memory was read or written, by NVML."""


def memory_bandwidth(record: RunRecord) -> Answer:
    """The GPU spends more time moving memory than computing.

    Judge by the profile's operators if there is one, else by NVML's memory utilisation.
    """
    if not on_gpu(record):
        return NO_GPU
    share = kernel_share(record, MEMORY_BOUND)
    busy = record.memory.sampled.get("gpu_memory_utilization", {}).get("mean")
    evidence = []
    if share is not None:
        severity = band(share, BANDWIDTH_WATCH, BANDWIDTH_BOTTLENECK)
        evidence.append(percent("device time in memory-bound operators, at least", share))
    elif busy is not None:
        severity = "watch" if busy >= MEMORY_BUSY else None
    else:
        return NotJudged("there is no profile, and NVML has no memory utilisation")
    if severity is None:
        return None
    if busy is not None:
        evidence.append(Evidence(what="device memory busy", value=busy, unit="%"))
    return Bottleneck(
        name="memory_bandwidth",
        severity=severity,
        cost=share or 0.0,
        evidence=evidence,
        advice="fuse elementwise operators (torch.compile, fused optimizer and norms), and keep "
        "activations in bf16",
    )


GOOD, FAIR = 85.0, 60.0
"""Percent; below FAIR it is a bottleneck."""


def gpu_utilization(record: RunRecord) -> Answer:
    """The GPU is idle part of the time, for any reason.

    Judge by NVML's mean while the launch trained.
    """
    if not on_gpu(record):
        return NO_GPU
    utilization = record.perf.gpu_utilization_avg
    if utilization is None:
        return unmeasured(record, "perf.gpu_utilization_avg")
    if utilization > GOOD:
        return None
    return Bottleneck(
        name="gpu_utilization",
        severity="watch" if utilization >= FAIR else "bottleneck",
        cost=0.0,
        evidence=[Evidence(what="GPU utilisation", value=utilization, unit="%")],
        advice="see the other bottlenecks; if there is none, profile some steps (profiler.enabled)",
    )
