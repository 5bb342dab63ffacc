"""The GPU spends more time moving memory than computing."""

from __future__ import annotations

from canary.record.bottlenecks.common import (
    NO_GPU,
    Answer,
    NotJudged,
    band,
    kernel_share,
    on_gpu,
    percent,
)
from canary.record.types import Bottleneck, Evidence, RunRecord

NAME = "memory_bandwidth"
MEMORY_BOUND = (
    r"copy_|_to_copy|\badd|\bmul|\bdiv|\bsub|\bcat\b|norm|softmax|gelu|silu|dropout|fill_|zero_|where"
    r"|elementwise|Memcpy|Memset|embedding|index|gather"
)
"""Operators with few operations per byte, so not matrix products, attention or convolutions."""
WATCH, BOTTLENECK = 0.5, 0.7
"""Shares of the device time in such operators."""
MEMORY_BUSY = 60.0
"""Percent of time in which the device's memory was read or written, by NVML."""


def judge(record: RunRecord) -> Answer:
    """Judge by the profile's operators if there is one, else by NVML's memory utilisation."""
    if not on_gpu(record):
        return NO_GPU
    share = kernel_share(record, MEMORY_BOUND)
    busy = record.memory.sampled.get("gpu_memory_utilization", {}).get("mean")
    evidence = []
    if share is not None:
        severity = band(share, WATCH, BOTTLENECK)
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
        name=NAME,
        severity=severity,
        cost=share or 0.0,
        evidence=evidence,
        advice="fuse elementwise operators (torch.compile, fused optimizer and norms), and keep "
        "activations in bf16",
    )
