"""Bottlenecks of a GPU that computes less than it could. A CPU has none of them."""

from __future__ import annotations

from canary.record.bottlenecks.common import band, found, gpu_memory_bytes, kernel_share, on_gpu
from canary.record.types import Bottleneck, RunRecord

CPU_OVER_GPU = 2.0
"""CPU time of the profiled steps over device time."""
ONE_CORE = 0.90
"""Share of the step in which the training thread is on its core."""
IDLE_BELOW = 0.60
"""GPU utilisation."""
WORK_PER_LAUNCH = (
    "give the GPU more work per kernel launch: larger micro-batches, fused kernels, torch.compile, "
    "a fused optimizer"
)


def _utilization(record: RunRecord) -> float | None:
    """Return the share of time in which a kernel ran; None if it was not measured."""
    percent = record.perf.gpu_utilization_avg
    return None if percent is None or not on_gpu(record) else percent / 100


def host_bound_launches(record: RunRecord) -> Bottleneck | None:
    """The host launches kernels more slowly than the GPU runs them.

    Judge by the profile if there is one, else by a busy thread and an idle GPU.
    """
    used, profiler = _utilization(record), record.profiler
    if on_gpu(record) and profiler.cpu_time_total_ms and profiler.cuda_time_total_ms:
        # A host that waits for its device is not the bottleneck.
        busy_ms = profiler.cpu_time_total_ms - (profiler.host_waits_ms or 0.0)
        ratio = busy_ms / profiler.cuda_time_total_ms
        return found(
            "host_bound_launches",
            "bottleneck" if ratio >= CPU_OVER_GPU else None,
            ("CPU time without waits over device time, profiled steps", ratio, ""),
            ("GPU utilisation", used, "%"),
            cost=1 - 1 / max(ratio, 1.0),
            advice=WORK_PER_LAUNCH,
        )
    busy_s = record.host.main_cpu_seconds_per_step
    if busy_s is None or used is None:
        return None
    share = busy_s / record.perf.step_time.mean
    return found(
        "host_bound_launches",
        "bottleneck" if share >= ONE_CORE and used < IDLE_BELOW else None,
        ("step time with the training thread on its core", share, "%"),
        ("GPU utilisation", used, "%"),
        cost=1 - used,
        advice=WORK_PER_LAUNCH,
    )


SMALL = 8
"""Rows of a micro-batch."""
BUSY = 0.60
"""A GPU with a lower utilisation can do more work."""
FREE = 0.5
"""Share of the device's memory that is never used."""
WAITS_FOR_DATA = 25.0
"""Percent of the step; a device that waits for data gains nothing from larger batches."""


def small_batches(record: RunRecord) -> Bottleneck | None:
    """Batches are too small to keep the GPU busy, and memory for larger ones is free.

    Judge by three conditions together: an idle device, free memory and few rows.
    """
    used, rows = _utilization(record), record.config.get("batch_size")
    device, peak = gpu_memory_bytes(record), record.memory.peak_reserved_bytes
    if used is None or rows is None or device is None or peak is None:
        return None
    free = 1 - peak / device
    fed = (record.perf.dataloader_wait_pct or 0.0) < WAITS_FOR_DATA
    return found(
        "small_batches",
        "bottleneck" if used < BUSY and rows <= SMALL and free >= FREE and fed else None,
        ("rows per micro-batch", rows, ""),
        ("GPU utilisation", used, "%"),
        ("free device memory", free, "%"),
        cost=1 - used,
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


def memory_bandwidth(record: RunRecord) -> Bottleneck | None:
    """The GPU spends more time moving memory than computing.

    Judge by the profile's operators if there is one, else by NVML's memory utilisation.
    """
    if not on_gpu(record):
        return None
    share = kernel_share(record, MEMORY_BOUND)
    busy = record.memory.sampled.get("gpu_memory_utilization", {}).get("mean")
    severity = None if share is None else band(share, BANDWIDTH_WATCH, BANDWIDTH_BOTTLENECK)
    if share is None and busy is not None and busy >= MEMORY_BUSY:
        severity = "watch"
    return found(
        "memory_bandwidth",
        severity,
        ("device time in memory-bound operators, at least", share, "%"),
        ("device memory busy", None if busy is None else busy / 100, "%"),
        cost=share or 0.0,
        advice="fuse elementwise operators (torch.compile, fused optimizer and norms), and keep "
        "activations in bf16",
    )


GOOD, FAIR = 0.85, 0.60
"""Below FAIR it is a bottleneck."""


def gpu_utilization(record: RunRecord) -> Bottleneck | None:
    """The GPU is idle part of the time, for any reason.

    Judge by NVML's mean while the launch trained.
    """
    used = _utilization(record)
    if used is None or used > GOOD:
        return None
    return found(
        "gpu_utilization",
        "watch" if used >= FAIR else "bottleneck",
        ("GPU utilisation", used, "%"),
        advice="see the other bottlenecks; if there is none, profile some steps (profiler.enabled)",
    )
