"""Every trainer on a device: times, memory, utilisation, bfloat16, profile."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from canary.config.schema import ONLINE_TRAINERS, TRAINING_TYPES
from canary.machine import gpu
from tests.gpu.trainings import CASES, LOOK, PROFILED, STEPS, UNTIMED, Case, Trainings, values_of
from tests.integration.conftest import canary, write_config
from tests.planting import plant

pytestmark = [pytest.mark.gpu, pytest.mark.train, pytest.mark.slow]

FULL = [case for case in CASES if case.dtype == "float32"]
PROFILES = [case for case in CASES if case.dtype == "bfloat16"]
OFFLINE = [name for name in TRAINING_TYPES if name not in ONLINE_TRAINERS]


def by_name(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


def in_use() -> gpu.Device:
    found = gpu.device_in_use(
        "cuda", gpu.list_devices().found, os.environ.get("CUDA_VISIBLE_DEVICES")
    )
    assert found is not None
    return found


@by_name(list(CASES))
def test_it_trains_on_its_device(case: Case, trainings: Trainings, device: str) -> None:
    trained = trainings.of(case)
    assert trained.run.code == 0, trained.run.err + trained.run.log()
    record = trained.record
    assert record.status == "completed"
    assert record.env["device"]["type"] == device
    assert record.env["device"]["dtype"] == case.dtype
    assert len(record.stability.loss_values) == STEPS
    assert record.stability.nan_steps == record.stability.inf_steps == 0
    if device == "cuda":
        assert record.env["device"]["name"] == in_use().name


@by_name(list(CASES))
def test_phases_add_up_to_the_step(case: Case, trainings: Trainings, device: str) -> None:
    rows = trainings.of(case).rows()
    assert len(rows) == STEPS
    for row in rows:
        assert sum(row["phases"].values()) == pytest.approx(row["wall_s"], rel=0.02)
        assert all(seconds >= 0 for seconds in row["phases"].values())
        for phase in ("forward", "backward", "optimizer"):
            assert row["phases"][phase] > 0, phase
    online = {"generation", "reward", "logprob"} & set(rows[-1]["phases"])
    assert bool(online) == (case.training_type in ONLINE_TRAINERS)
    if case.training_type == "ppo":
        assert rows[-1]["phases"]["advantage"] > 0


@by_name(FULL)
def test_steps_agree_with_a_clock_that_waits_for_the_device(
    case: Case, trainings: Trainings, device: str
) -> None:
    trained = trainings.of(case)
    ends = trained.synchronised_s()
    walls = [row["wall_s"] for row in trained.rows()]
    assert len(ends) == STEPS
    told, true = sum(walls[UNTIMED:]), ends[-1] - ends[UNTIMED - 1]
    assert told == pytest.approx(true, rel=0.05, abs=0.01)
    # Step by step too; logging, which comes after the clock, differs a little between steps.
    for wall, before, after in zip(
        walls[UNTIMED:], ends[UNTIMED - 1 :], ends[UNTIMED:], strict=False
    ):
        assert wall == pytest.approx(after - before, rel=0.25, abs=0.02)


@by_name(list(CASES))
def test_peak_memory_is_the_allocators_own(case: Case, trainings: Trainings, device: str) -> None:
    trained = trainings.of(case)
    record, memory = trained.record, trained.record.memory
    if device == "cpu":
        assert record.perf.max_mem_kind == "resident"
        assert "memory.peak_allocated_bytes" in record.unmeasured
        return
    assert record.perf.max_mem_kind == "device"
    assert memory.peak_allocated_bytes is not None
    assert memory.peak_reserved_bytes is not None
    told = record.env["device"]
    assert memory.peak_allocated_bytes == pytest.approx(told["peak_allocated_bytes"], rel=0.02)
    assert memory.peak_reserved_bytes == pytest.approx(told["peak_reserved_bytes"], rel=0.02)
    assert memory.peak_allocated_bytes <= memory.peak_reserved_bytes
    for row in trained.rows():
        assert 0 < row["allocated_bytes"] <= row["peak_bytes"] <= row["reserved_bytes"]
    # NVML sees the same, and the context beside it.
    assert memory.sampled["gpu_memory_bytes"]["max"] >= memory.peak_allocated_bytes


@by_name(list(CASES))
def test_utilisation_is_recorded(case: Case, trainings: Trainings, device: str) -> None:
    record = trainings.of(case).record
    assert record.perf.cpu_utilization_avg is not None
    assert record.host.cpu_seconds_per_step is not None
    assert record.host.cpu_seconds_per_step > 0
    assert record.perf.samples_per_sec is not None
    if device == "cpu":
        assert record.perf.gpu_utilization_avg is None
        assert "perf.gpu_utilization_avg" in record.unmeasured
        return
    assert record.perf.gpu_utilization_avg is not None
    assert 0 <= record.perf.gpu_utilization_avg <= 100
    assert record.memory.sampled["gpu_utilization"]["samples"] >= 1
    assert "perf.gpu_utilization_avg" not in record.unmeasured


@by_name(PROFILES)
def test_the_profile_has_the_devices_times(case: Case, trainings: Trainings, device: str) -> None:
    trained = trainings.of(case)
    record, found = trained.record, trained.record.profiler
    first, count = PROFILED["start_step"], PROFILED["num_steps"]
    assert found.steps == list(range(first, first + count))
    assert found.cpu_time_total_ms is not None
    assert found.cpu_time_total_ms > 0
    assert found.top_cpu_ops
    if device == "cpu":
        assert found.cuda_time_total_ms is None
        return
    assert not [name for name in record.unmeasured if name.startswith("profiler")]
    assert found.wall_ms is not None
    assert found.cuda_time_total_ms is not None
    assert 0 < found.cuda_time_total_ms <= found.wall_ms
    assert found.self_cuda_time_total_ms == pytest.approx(found.cuda_time_total_ms, rel=0.2)
    assert found.top_cuda_ops[0].self_cuda_time_ms > 0
    assert found.kernel_launches is not None
    assert found.kernel_launches > 100
    assert found.device_idle_pct is not None
    assert 0 <= found.device_idle_pct < 100


@pytest.mark.parametrize("training_type", OFFLINE)
def test_bfloat16_starts_where_float32_does(
    training_type: str, trainings: Trainings, device: str
) -> None:
    """A fresh adapter changes nothing: the first loss is the whole model's, but for rounding."""
    exact, rounded = (
        trainings.of(Case(training_type, dtype)).record.exact["first_loss"]["loss"]
        for dtype in ("float32", "bfloat16")
    )
    assert rounded == pytest.approx(exact, rel=0.03, abs=0.01)
    assert rounded is not None
    assert math.isfinite(rounded)


@pytest.mark.parametrize("training_type", ["sft", "ppo"])
def test_the_look_repeats_bit_by_bit(training_type: str, trainings: Trainings, device: str) -> None:
    case = Case(training_type, "float32")
    first, again = trainings.of(case).record.exact, trainings.again(case).exact
    assert first["trajectory"] == again["trajectory"]
    assert first["first_gradient"] == again["first_gradient"]
    assert first["batches"] == again["batches"]


KERNELS = """
import torch
from transformers import TrainerCallback

class Kernels(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        with open(FILE, "a") as stream:
            print(torch.are_deterministic_algorithms_enabled(), file=stream)

trainer.add_callback(Kernels())
"""


def test_kernels_are_deterministic_in_the_look_alone(tmp_path: Path, device: str) -> None:
    told = tmp_path / "kernels.txt"
    plant(tmp_path, f"FILE = {str(told)!r}\n{KERNELS}")
    path = write_config(tmp_path, values_of(Case("sft", "float32"), device))
    finished = canary("run", str(path), "-o", str(tmp_path / "out"), cwd=tmp_path)
    assert finished.code == 0, finished.err
    looked = str(device == "cuda")
    assert told.read_text().split() == [looked] * LOOK + ["False"] * (STEPS - LOOK)
