"""The host's figures of a run on a device. Not run without one."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from canary.training.collectors.clock import StepClock
from canary.training.collectors.steps import EndedSteps, RunningStep, summed
from canary.training.look import no_look

pytestmark = pytest.mark.gpu


def test_the_hosts_clock_of_a_step_does_not_wait_for_the_device() -> None:
    clock = StepClock(torch.device("cuda"))
    clock.start()
    torch.cuda._sleep(2_000_000_000)
    with clock.phase("forward"):
        time.sleep(0.05)
    start = time.perf_counter()
    step = clock.close()
    host = step.on_host()
    assert time.perf_counter() - start < 0.1
    assert 0.05 <= host["waiting_s"] <= host["computing_s"] < 0.5
    torch.cuda.synchronize()
    assert step.wall_s() > 0.3


def test_backward_of_a_device_is_no_waiting_of_the_host() -> None:
    clock = StepClock(torch.device("cuda"))
    clock.start()
    with clock.phase("backward"):
        time.sleep(0.1)
    assert clock.close().on_host()["waiting_s"] < 0.02


def test_rows_tell_of_the_allocators_retries() -> None:
    rows: list[Any] = []
    steps = EndedSteps(torch.device("cuda"), rows.append, no_look())
    steps.begin()
    steps.close(0, 1, RunningStep(), summed)
    steps.flush(wait=True)
    assert rows[0]["alloc_retries"] == torch.cuda.memory_stats()["num_alloc_retries"]
