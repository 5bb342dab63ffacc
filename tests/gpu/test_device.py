"""The meters of a real device, against the device's own word."""

from __future__ import annotations

import os
import time

import pytest
import torch

from canary.machine import gpu
from canary.training.collectors.clock import DeferredScalars, StepClock
from canary.training.exact.parameters import tensor_digest

pytestmark = pytest.mark.gpu


def in_use() -> gpu.Device:
    found = gpu.list_devices()
    device = gpu.device_in_use("cuda", found.found, os.environ.get("CUDA_VISIBLE_DEVICES"))
    assert device is not None
    return device


def work(seconds: float = 0.0) -> None:
    matrix = torch.randn(4096, 4096, device="cuda")
    for _ in range(20):
        matrix = matrix @ matrix.T
        matrix = matrix / matrix.norm()
    time.sleep(seconds)


def test_event_times_agree_with_a_synchronised_clock() -> None:
    work()
    torch.cuda.synchronize()
    clock = StepClock(torch.device("cuda"))
    clock.start()
    start = time.perf_counter()
    with clock.phase("data"):
        time.sleep(0.2)
    with clock.phase("forward"):
        work()
        torch.cuda.synchronize()
    elapsed = time.perf_counter() - start
    step = clock.close()
    torch.cuda.synchronize()
    assert step.wall_s() == pytest.approx(elapsed, rel=0.02, abs=0.002)
    assert step.by_phase()["data"] == pytest.approx(0.2, rel=0.05)
    assert sum(step.by_phase().values()) == pytest.approx(step.wall_s(), rel=1e-3)


def test_closing_a_step_does_not_wait_for_the_device() -> None:
    work()
    torch.cuda.synchronize()
    clock = StepClock(torch.device("cuda"))
    clock.start()
    torch.cuda._sleep(2_000_000_000)
    deferred = DeferredScalars({"loss": torch.ones((), device="cuda") * 3, "tokens": 7})
    start = time.perf_counter()
    step = clock.close()
    assert time.perf_counter() - start < 0.05
    assert not step.is_ready()
    torch.cuda.synchronize()
    assert step.is_ready()
    assert deferred.read() == {"loss": 3.0, "tokens": 7}


def test_nvml_looks_at_the_device_that_torch_uses() -> None:
    device = in_use()
    assert device.uuid.removeprefix("GPU-") in str(torch.cuda.get_device_properties(0).uuid)
    assert device.name == torch.cuda.get_device_name(0)
    before = gpu.utilization(device)["gpu_memory_bytes"]
    block = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    assert gpu.utilization(device)["gpu_memory_bytes"] - before >= 0.9 * 2**30
    del block


def test_digests_do_not_depend_on_the_device() -> None:
    value = torch.randn(1000, 33)
    assert tensor_digest(value, True) == tensor_digest(value.cuda(), True)
    assert tensor_digest(value, False) == tensor_digest(value.cuda(), False)
