"""What the bottlenecks read from a record in more than one place."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from canary.record.types import Bottleneck, Evidence, RunRecord

FEWEST_STEPS = 5
"""Timed steps below which a run says nothing of what holds it back."""
MB = 2**20


@dataclass(frozen=True)
class NotJudged:
    """The record lacks what a bottleneck needs."""

    reason: str


Answer = Bottleneck | NotJudged | None


def too_short(record: RunRecord) -> str:
    """Why nothing can be said of a run; empty where something can."""
    count = record.perf.step_time.count
    return "" if count >= FEWEST_STEPS else f"{count} timed steps; it takes {FEWEST_STEPS}"


def band(value: float, watch: float, bottleneck: float) -> Literal["bottleneck", "watch"] | None:
    """The severity of a figure that is fine below `watch` and a bottleneck from the other on."""
    if value >= bottleneck:
        return "bottleneck"
    return "watch" if value >= watch else None


def percent(what: str, share: float) -> Evidence:
    """A share of one, as percent."""
    return Evidence(what=what, value=100 * share, unit="%")


def unmeasured(record: RunRecord, *keys: str) -> NotJudged:
    """In the record's own words, where it has some for one of the keys."""
    words = (record.unmeasured.get(key) for key in keys)
    return NotJudged(next(filter(None, words), f"{keys[0]} was not measured"))


def on_gpu(record: RunRecord) -> bool:
    """Whether a GPU trained."""
    return bool((record.env.get("device") or {}).get("type") == "cuda")


NO_GPU = NotJudged("for GPUs; none trained here")


def gpu_memory_bytes(record: RunRecord) -> int | None:
    """The memory of the device that trained, where its like is known."""
    device: dict[str, Any] = record.env.get("device") or {}
    uuid = record.gpu_health.get("uuid")
    gpus = record.env.get("gpus") or []
    for gpu in gpus:
        if uuid is not None and gpu["uuid"] == uuid:
            return int(gpu["memory_bytes"])
    sizes = {int(gpu["memory_bytes"]) for gpu in gpus if gpu["name"] == device.get("name")}
    return sizes.pop() if len(sizes) == 1 else None


def kernel_share(record: RunRecord, pattern: str) -> float | None:
    """Share of the profiled device time in operators whose name matches; None without a profile.

    Only the operators that the profile names are known: at least this share.
    """
    profiler = record.profiler
    total = profiler.self_cuda_time_total_ms or profiler.cuda_time_total_ms
    if not total:
        return None
    of_kind = sum(
        op.self_cuda_time_ms for op in profiler.top_cuda_ops if re.search(pattern, op.name)
    )
    return min(1.0, of_kind / total)
