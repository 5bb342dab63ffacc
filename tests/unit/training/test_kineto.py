"""The reader of the profiler's events: the same table as torch's own, of a host and of a device."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.autograd import DeviceType, profiler
from torch.autograd.profiler_util import EventList
from torch.profiler import ProfilerActivity, profile, record_function

from canary.training.collectors.kineto import read_events

ROW = (
    *("count", "self_cpu_time_total", "cpu_time_total"),
    *("self_device_time_total", "device_time_total"),
)


def table(averages: Any) -> dict[tuple[str, str, bool], Any]:
    found = {}
    for row in averages:
        key = (row.key, str(row.device_type), bool(row.is_user_annotation))
        found[key] = pytest.approx([getattr(row, name) for name in ROW], abs=1e-3)
    return found


def read_table(result: Any, on_device: bool) -> dict[tuple[str, str, bool], list[float]]:
    with read_events(result, on_device=on_device) as (averages, _):
        return {
            (row.key, str(row.device_type), row.is_user_annotation): [
                getattr(row, name) for name in ROW
            ]
            for row in averages
        }


def test_the_table_of_a_host_is_the_one_of_torch() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.GELU())
    optimizer = torch.optim.AdamW(model.parameters())
    with profile(activities=[ProfilerActivity.CPU]) as running:
        for _ in range(3):
            with record_function("mine"):
                model(torch.randn(4, 8)).sum().backward()
            optimizer.step()
    assert running.profiler is not None
    found = read_table(running.profiler.kineto_results, on_device=False)
    assert found == table(running.key_averages())
    assert ("mine", "DeviceType.CPU", True) in found


class Told:
    """An event as Kineto tells it, in ns; whatever is not given is nothing."""

    def __init__(self, name: str, start: int, end: int, **given: Any) -> None:
        of_host = {"device_type": DeviceType.CPU, "start_thread_id": 1, "end_thread_id": 1}
        self._given = {"name": name, "start_ns": start, "end_ns": end, "stack": []}
        self._given |= of_host | given

    def __getattr__(self, name: str) -> Any:
        return lambda: self._given.get(name, 0)


def on_gpu(name: str, start: int, end: int, linked: int, **given: Any) -> Told:
    return Told(
        name,
        start,
        end,
        device_type=DeviceType.CUDA,
        start_thread_id=7,
        end_thread_id=7,
        linked_correlation_id=linked,
        **given,
    )


def of_a_device() -> SimpleNamespace:
    """Two operators within another, their launches by the run time, kernels, a copy, a mark."""
    events = [
        Told("aten::linear", 1000, 90_000, correlation_id=1),
        Told("aten::addmm", 2000, 40_000, correlation_id=2),
        Told("cudaLaunchKernel", 3000, 9000, correlation_id=51, linked_correlation_id=2),
        Told("aten::copy_", 50_000, 80_000, correlation_id=3),
        Told("aten::copy_", 51_000, 79_000, correlation_id=4),
        Told("cudaMemcpyAsync", 52_000, 70_000, linked_correlation_id=4, start_thread_id=9),
        Told("cudaDeviceSynchronize", 95_000, 99_000),
        Told("elsewhere", 5000, 60_000, correlation_id=5, end_thread_id=2),
        Told("autograd::engine", 10_000, 20_000, start_thread_id=3, end_thread_id=3),
        Told("[memory]", 60_000, 60_000, nbytes=64),
        on_gpu("gemm", 20_000, 60_000, 2),
        on_gpu("gemm", 60_000, 70_000, 2),
        on_gpu("Memcpy HtoD", 71_000, 76_000, 4),
        on_gpu("ProfilerStep#3", 20_000, 76_000, 0, is_user_annotation=True),
    ]
    return SimpleNamespace(events=lambda: events, trace_start_ns=lambda: 500)


def test_the_table_of_a_device_is_the_one_of_torch() -> None:
    torchs = object.__new__(profiler.profile)
    torchs.use_device = "cuda"  # type: ignore[assignment]
    parsed = EventList(torchs._parse_kineto_results(of_a_device()), use_device="cuda")
    parsed._build_tree()
    expected = table(parsed.key_averages())
    expected.pop(("[memory]", "DeviceType.CPU", False), None)  # of nothing that computes
    found = read_table(of_a_device(), on_device=True)
    assert found == expected
    assert found["aten::copy_", "DeviceType.CPU", False][0] == 1, "one within its like is one"
    assert found["aten::linear", "DeviceType.CPU", False][-1] == 55.0


def test_what_was_read_is_gone_afterwards_without_a_collection() -> None:
    gc.disable()
    try:
        with read_events(of_a_device(), on_device=True) as (_, events):
            outer = weakref.ref(events[0])
            assert events[0].cpu_children
        assert events == []
        assert outer() is None
    finally:
        gc.enable()
