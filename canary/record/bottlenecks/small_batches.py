"""Batches are too small to keep the GPU busy, and memory for larger ones is free."""

from __future__ import annotations

from canary.record.bottlenecks.common import (
    NO_GPU,
    Answer,
    NotJudged,
    gpu_memory_bytes,
    on_gpu,
    percent,
    unmeasured,
)
from canary.record.types import Bottleneck, Evidence, RunRecord

NAME = "small_batches"
SMALL = 8
"""Rows of a micro-batch."""
BUSY = 60.0
"""A GPU with a lower utilisation, in percent, can do more work."""
FREE = 0.5
"""Share of the device's memory that is never used."""
WAITS_FOR_DATA = 25.0
"""Percent of the step; a device that waits for data gains nothing from larger batches."""


def judge(record: RunRecord) -> Answer:
    """Judge by three conditions together: an idle device, free memory and few rows."""
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
        name=NAME,
        severity="bottleneck",
        cost=1 - utilization / 100,
        evidence=[
            Evidence(what="rows per micro-batch", value=rows),
            Evidence(what="GPU utilisation", value=utilization, unit="%"),
            percent("free device memory", free),
        ],
        advice="raise batch_size, and lower gradient_accumulation_steps by the same factor",
    )
