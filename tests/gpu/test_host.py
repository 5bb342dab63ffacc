"""The host's figures and the bottlenecks of a run on a device. Not run without one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from canary.record.types import RunRecord
from canary.training.collectors.clock import StepClock
from canary.training.collectors.steps import EndedSteps, RunningStep, summed
from canary.training.look import no_look
from tests.integration.conftest import canary, settings, write_config
from tests.planting import plant

pytestmark = pytest.mark.gpu


def run(folder: Path, body: str, **changes: Any) -> RunRecord:
    plant(folder, body)
    steps = {"max_steps": 80, "look_steps": 3, "metrics_warmup_steps": 5, "device": "cuda"}
    path = write_config(folder, settings("sft", **steps | {"dataset_size": 400} | changes))
    finished = canary("run", str(path), "-o", str(folder / "out"), cwd=folder)
    assert finished.code == 0, finished.err
    return finished.record()


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


def test_a_tiny_canary_leaves_its_device_idle_and_is_told_why(tmp_path: Path) -> None:
    record = run(tmp_path, "pass")
    assert record.bottlenecks is not None
    found = {one.name: one.severity for one in record.bottlenecks}
    assert found["gpu_utilization"] == "bottleneck"
    assert found["small_batches"] == "bottleneck"
    assert "data_loading" not in found
    assert record.memory.sampled["gpu_memory_utilization"]["mean"] >= 0
    assert record.memory.alloc_retries == 0


def test_a_slow_collator_starves_the_device(tmp_path: Path) -> None:
    body = """
import time
original = trainer.data_collator
def slow(rows):
    time.sleep(0.05 * len(rows))
    return original(rows)
trainer.data_collator = slow
"""
    record = run(tmp_path, body, max_steps=30)
    assert record.bottlenecks is not None
    names = [one.name for one in record.bottlenecks]
    assert names[0] == "data_loading"
    assert "small_batches" not in names
