"""What several bottlenecks need: how one is found, and facts of a record."""

from __future__ import annotations

import re
from typing import Literal

from canary.record.types import Bottleneck, Evidence, RunRecord

FEWEST_STEPS = 5
"""Timed steps that a run needs before its bottlenecks are judged."""
MB = 2**20
Severity = Literal["bottleneck", "watch"] | None


def too_short(record: RunRecord) -> str:
    """Return why a run is too short to judge, or an empty text."""
    count = record.perf.step_time.count
    return "" if count >= FEWEST_STEPS else f"{count} timed steps; at least {FEWEST_STEPS} needed"


def band(value: float, watch: float, bottleneck: float) -> Severity:
    """Return the severity of a figure; None below `watch`."""
    if value >= bottleneck:
        return "bottleneck"
    return "watch" if value >= watch else None


def found(
    name: str,
    severity: Severity,
    *evidence: tuple[str, float | None, str],
    advice: str,
    cost: float = 0.0,
) -> Bottleneck | None:
    """Return a bottleneck; None without a severity.

    `evidence`: what, value and unit of each number. A value that is None is left out; a unit `%`
    takes a share from 0 to 1.
    """
    if severity is None:
        return None
    return Bottleneck(
        name=name,
        severity=severity,
        cost=min(1.0, cost),
        evidence=[
            Evidence(what=what, value=100 * value if unit == "%" else value, unit=unit)
            for what, value, unit in evidence
            if value is not None
        ],
        advice=advice,
    )


def on_gpu(record: RunRecord) -> bool:
    """Return whether a GPU trained."""
    return bool((record.env.get("device") or {}).get("type") == "cuda")


def gpu_memory_bytes(record: RunRecord) -> int | None:
    """Return the memory of the device that trained; None if GPUs of its name have several sizes."""
    name, gpus = (record.env.get("device") or {}).get("name"), record.env.get("gpus") or []
    sizes = {int(gpu["memory_bytes"]) for gpu in gpus if gpu["name"] == name}
    return sizes.pop() if len(sizes) == 1 else None


def kernel_share(record: RunRecord, pattern: str) -> float | None:
    """Return the share of profiled device time in matching operators; None without a profile. It
    is a lower bound: only the operators listed in the profile count."""
    profiler = record.profiler
    total = profiler.self_cuda_time_total_ms or profiler.cuda_time_total_ms
    if not total:
        return None
    of_kind = sum(
        op.self_cuda_time_ms for op in profiler.top_cuda_ops if re.search(pattern, op.name)
    )
    return min(1.0, of_kind / total)
