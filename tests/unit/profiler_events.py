"""Events and averages as torch's profiler has them, of this and of older generations."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


def average(
    name: str,
    count: int = 1,
    *,
    self_cpu: float = 0.0,
    cpu: float | None = None,
    self_device: float = 0.0,
    device: float | None = None,
    on: str = "DeviceType.CPU",
    old: bool = False,
    **more: Any,
) -> SimpleNamespace:
    """A row of `key_averages()`, times in microseconds; `old`: before torch 2.3 or so."""
    of = "cuda" if old else "device"
    return SimpleNamespace(
        key=name,
        count=count,
        device_type=on,
        self_cpu_time_total=self_cpu,
        cpu_time_total=self_cpu if cpu is None else cpu,
        **{
            f"self_{of}_time_total": self_device,
            f"{of}_time_total": self_device if device is None else device,
        },
        **more,
    )


def event(
    name: str,
    start: float = 0.0,
    end: float = 0.0,
    *,
    on: str = "DeviceType.CPU",
    **more: Any,
) -> SimpleNamespace:
    """One of `events()`, times in microseconds."""
    return SimpleNamespace(
        name=name,
        device_type=on,
        time_range=SimpleNamespace(start=start, end=end),
        **more,
    )


CUDA = "DeviceType.CUDA"


def on_a_device(old: bool = False) -> tuple[list[SimpleNamespace], list[SimpleNamespace]]:
    """Averages and events of two steps on a device, in which each of its parts occurs once."""
    averages = [
        average("aten::mm", 4, self_cpu=400, cpu=900, self_device=6000, old=old),
        average("aten::copy_", 3, self_cpu=300, self_device=3000, old=old),
        average("aten::_to_copy", 2, self_cpu=100, cpu=500, device=2500, old=old),
        average("cudaLaunchKernel", 6, self_cpu=200, old=old),
        average("cudaLaunchKernelExC", 1, self_cpu=50, old=old),
        average("cudaMemcpyAsync", 1, self_cpu=150, old=old),
        average("cudaDeviceSynchronize", 1, self_cpu=5000, old=old),
        average("sm90_xmma_gemm", 4, self_device=6000, on=CUDA, old=old),
        average("Memcpy HtoD (Pageable -> Device)", 1, self_device=2000, on=CUDA, old=old),
        average("Memcpy DtoD (Device -> Device)", 1, self_device=500, on=CUDA, old=old),
        average("Optimizer.step#AdamW.step", 2, self_cpu=7000, old=old, scope=7),
        average("Optimizer.step#AdamW.step", 2, self_device=9000, on=CUDA, old=old, scope=7),
        average("[memory]", 30, old=old),
        average("Activity Buffer Request", 1, self_cpu=9000, old=old),
        average("train.py(12): step", 2, self_cpu=80000, old=old),
    ]
    events = [
        event("aten::_to_copy", 0, 300),
        event("sm90_xmma_gemm", 1000, 4000, on=CUDA),
        event("sm90_xmma_gemm", 3000, 6000, on=CUDA),
        event("Memcpy HtoD (Pageable -> Device)", 7000, 9000, on=CUDA),
        event("Memcpy DtoD (Device -> Device)", 9000, 9500, on=CUDA),
        event("Optimizer.step#AdamW.step", 0, 9000, on=CUDA, is_user_annotation=True),
    ]
    return averages, events
