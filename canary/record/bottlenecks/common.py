"""Facts of a record that several bottlenecks need."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from canary.record.types import Bottleneck, Evidence, RunRecord

FEWEST_STEPS = 5
"""Timed steps that a run needs before its bottlenecks are judged."""
MB = 2**20


@dataclass(frozen=True)
class NotJudged:
    """The record lacks what a bottleneck needs."""

    reason: str


Answer = Bottleneck | NotJudged | None


def too_short(record: RunRecord) -> str:
    """Return why a run is too short to judge, or an empty text."""
    count = record.perf.step_time.count
    return "" if count >= FEWEST_STEPS else f"{count} timed steps; at least {FEWEST_STEPS} needed"


def band(value: float, watch: float, bottleneck: float) -> Literal["bottleneck", "watch"] | None:
    """Return the severity of a figure; None below `watch`."""
    if value >= bottleneck:
        return "bottleneck"
    return "watch" if value >= watch else None


def percent(what: str, share: float) -> Evidence:
    """Return a share, 0 to 1, as evidence in percent."""
    return Evidence(what=what, value=100 * share, unit="%")


def unmeasured(record: RunRecord, *keys: str) -> NotJudged:
    """Return NotJudged with the reason that the record has for one of the keys, if any."""
    words = (record.unmeasured.get(key) for key in keys)
    return NotJudged(next(filter(None, words), f"{keys[0]} was not measured"))


def on_gpu(record: RunRecord) -> bool:
    """Return whether a GPU trained."""
    return bool((record.env.get("device") or {}).get("type") == "cuda")


NO_GPU = NotJudged("only judged for GPUs; this run trained on none")


def gpu_memory_bytes(record: RunRecord) -> int | None:
    """Return the memory of the device that trained; None if its GPU cannot be identified."""
    device: dict[str, Any] = record.env.get("device") or {}
    uuid = record.gpu_health.get("uuid")
    gpus = record.env.get("gpus") or []
    for gpu in gpus:
        if uuid is not None and gpu["uuid"] == uuid:
            return int(gpu["memory_bytes"])
    sizes = {int(gpu["memory_bytes"]) for gpu in gpus if gpu["name"] == device.get("name")}
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
