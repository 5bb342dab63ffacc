"""The quick diagnosis of a profile: findings from its totals, and their limits. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from canary.record.types import OperatorRow, Profiler

HOST_BOUND = 2.0
"""Host time over device time; above it the device waits for the host to launch work."""
DEVICE_BOUND = 0.5
COPIES_PCT = 30.0
"""Of the device's time."""
CONVERSIONS_PCT = 10.0
"""Of the device's time, or of the host's without a device."""
DOMINANT_PCT = 50.0
"""Of the self time of all operators."""
IDLE_PCT = 40.0
"""Of the wall time: the device works for less than 60% of it."""

Topic = Literal["balance", "idle", "copies", "conversions", "operator"]


@dataclass(frozen=True)
class Reading:
    """One line of the diagnosis."""

    topic: Topic
    concern: bool
    """Whether it names a bottleneck."""
    text: str
    value: float | None = None
    """The number compared with the limits: a ratio (`balance`), or percent."""


def readings(profiler: Profiler) -> tuple[Reading, ...]:
    """Return the findings in a fixed order; an empty tuple without a profile."""
    if not profiler.steps:
        return ()
    found = [_balance(profiler), _idle(profiler), _copies(profiler), _conversions(profiler)]
    found.append(_dominant(profiler))
    return tuple(reading for reading in found if reading is not None)


def has_device(profiler: Profiler) -> bool:
    """Return whether the device was traced and did any work."""
    return bool(profiler.cuda_time_total_ms)


def host_ms(profiler: Profiler) -> float:
    """Return the host time in operators, without waits for the device."""
    return max(0.0, (profiler.cpu_time_total_ms or 0.0) - (profiler.host_waits_ms or 0.0))


def _balance(profiler: Profiler) -> Reading:
    host, device = host_ms(profiler), profiler.cuda_time_total_ms
    if not device:
        return Reading("balance", False, _without_device(profiler, host))
    ratio = host / device
    said = f"host {host:.1f} ms / device {device:.1f} ms = {ratio:.2f}"
    if ratio > HOST_BOUND:
        text = (
            f"host-bound: {said}, above {HOST_BOUND:g}: the device waits for kernel launches; use "
            "fewer, larger operators (fused kernels, larger batches, torch.compile)"
        )
    elif ratio < DEVICE_BOUND:
        text = f"device-bound: {said}, below {DEVICE_BOUND:g}: the kernels take the time"
    else:
        text = f"balanced: {said}, between {DEVICE_BOUND:g} and {HOST_BOUND:g}"
    return Reading("balance", ratio > HOST_BOUND, text, ratio)


def _without_device(profiler: Profiler, host: float) -> str:
    text = "CPU only: device time, copies, kernel launches and idle time were not measured"
    if profiler.wall_ms:
        share = 100 * host / profiler.wall_ms
        text += (
            f"; operators took {host:.1f} of {profiler.wall_ms:.1f} ms wall time ({share:.0f}%), "
            "the rest is Python, data and waiting"
        )
    return text


def _idle(profiler: Profiler) -> Reading | None:
    idle = profiler.device_idle_pct
    if idle is None:
        return None
    text = f"the device was idle for {idle:.0f}% of the wall time"
    if idle > IDLE_PCT:
        text += f", above {IDLE_PCT:g}%"
    return Reading("idle", idle > IDLE_PCT, text, idle)


def _copies(profiler: Profiler) -> Reading | None:
    copies, device = profiler.copies, profiler.cuda_time_total_ms
    if copies is None or not device:
        return None
    share = 100 * copies.time_ms / device
    moved = "" if copies.bytes is None else f", {copies.bytes / 2**20:.1f} MB"
    text = (
        f"copies between host and device take {share:.1f}% of the device's time "
        f"({copies.time_ms:.1f} ms, copies: {copies.count}{moved})"
    )
    if share > COPIES_PCT:
        text += f", above {COPIES_PCT:g}%: keep tensors on the device, and pin those you must copy"
    return Reading("copies", share > COPIES_PCT, text, share)


def _conversions(profiler: Profiler) -> Reading | None:
    found = profiler.conversions
    total = profiler.cuda_time_total_ms if has_device(profiler) else profiler.cpu_time_total_ms
    if found is None or not total:
        return None
    share = 100 * found.time_ms / total
    part = "device's" if has_device(profiler) else "operators'"
    text = (
        f"dtype conversions take {share:.1f}% of the {part} time "
        f"({found.time_ms:.1f} ms, calls: {found.count})"
    )
    if share > CONVERSIONS_PCT:
        text += f", above {CONVERSIONS_PCT:g}%: load and compute in one dtype"
    return Reading("conversions", share > CONVERSIONS_PCT, text, share)


def self_ms(profiler: Profiler, row: OperatorRow) -> float:
    """Return an operator's self time on the device if it was traced, else on the host."""
    return row.self_cuda_time_ms if has_device(profiler) else row.self_cpu_time_ms


def top_operators(profiler: Profiler) -> list[OperatorRow]:
    """Return the operators by self time on the device if it was traced, else on the host."""
    return profiler.top_cuda_ops if has_device(profiler) else profiler.top_cpu_ops


def operators_ms(profiler: Profiler) -> float:
    """Return all operators' self time on the device if it was traced, else on the host."""
    total = profiler.self_cuda_time_total_ms if has_device(profiler) else profiler.cpu_time_total_ms
    return total or 0.0


def _dominant(profiler: Profiler) -> Reading | None:
    top, total = top_operators(profiler), operators_ms(profiler)
    if not top or not total:
        return None
    share = 100 * self_ms(profiler, top[0]) / total
    text = f"{top[0].name} takes {share:.0f}% of the operators' self time"
    if share > DOMINANT_PCT:
        text = f"one operator dominates: {text}, above {DOMINANT_PCT:g}%"
    return Reading("operator", share > DOMINANT_PCT, text, share)
