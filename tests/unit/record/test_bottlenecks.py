"""Each bottleneck: named with its numbers where they are planted, silent where they are not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from canary.record.bottlenecks import find_bottlenecks, one_line
from canary.record.types import Bottleneck, OperatorRow, Profiler, RunRecord
from tests.unit.comparing import MB, altered, example, growing, on_gpu, step_time


def gpu_run(**changes: Any) -> RunRecord:
    """A healthy run on a GPU: busy, fed, most of the device's memory in use."""
    made = on_gpu(example(), utilization=92.0)
    made = altered(made, "memory", "peak_reserved_bytes", to=60 << 30)
    made = altered(made, "memory", "peak_allocated_bytes", to=50 << 30)
    made = altered(made, "host", "main_cpu_seconds_per_step", to=0.4 * 0.1)
    made = altered(made, "perf", "step_time", to=step_time(0.1, 0.1))
    made = altered(made, "exact", "work", "host_reads", to=35)
    made = altered(made, "memory", "sampled", to={"gpu_memory_utilization": {"mean": 30.0}})
    return with_values(made, changes)


def with_values(made: RunRecord, values: Mapping[str, Any]) -> RunRecord:
    """Values by dotted path, `__` for a dot."""
    for path, value in values.items():
        made = altered(made, *path.split("__"), to=value)
    return made


def names(record: RunRecord) -> list[str]:
    return [found.name for found in find_bottlenecks(record)]


def the(name: str, record: RunRecord) -> Bottleneck:
    found = {one.name: one for one in find_bottlenecks(record)}
    assert name in found, find_bottlenecks(record)
    return found[name]


def value(found: Bottleneck, what: str) -> float:
    return next(one.value for one in found.evidence if what in one.what)


def test_a_healthy_run_on_a_gpu_names_none() -> None:
    assert names(gpu_run()) == []


@pytest.mark.parametrize("kind", ["sft", "grpo"])
def test_real_records_of_healthy_canaries_name_none(kind: str) -> None:
    assert names(example(kind)) == []


@pytest.mark.parametrize(("percent", "severity"), [(9.9, None), (25.0, "bottleneck")])
def test_waiting_for_data_is_named_by_its_share_of_the_step(
    percent: float, severity: str | None
) -> None:
    waiting = with_values(
        example(), {"perf__dataloader_wait_pct": percent, "phases__data": percent / 1000}
    )
    if severity is None:
        assert names(waiting) == []
        return
    found = the("data_loading", waiting)
    assert found.severity == severity
    assert value(found, "step time in the data phase") == pytest.approx(percent)
    assert value(found, "data phase") == pytest.approx(percent)
    assert value(found, "loader workers") == 0
    assert found.cost == pytest.approx(percent / 100)


def contended(contention: float) -> RunRecord:
    shares = {"waiting": contention, "other_threads": 0.9, "gil_held": 0.95}
    host = {f"host__{name}": share for name, share in shares.items()}
    return with_values(example(), host | {"host__gil_contention": contention})


@pytest.mark.parametrize(
    ("contention", "severity"), [(0.049, None), (0.05, "watch"), (0.2, "bottleneck")]
)
def test_waiting_for_pythons_lock_is_named_in_the_documented_bands(
    contention: float, severity: str | None
) -> None:
    found = {one.name: one for one in find_bottlenecks(contended(contention))}
    assert (found["gil_contention"].severity if found else None) == severity
    if found:
        assert value(found["gil_contention"], "waiting for Python's lock") == 100 * contention


def profile(cuda_ms: float, cpu_ms: float, **operators: float) -> Profiler:
    rows = [
        OperatorRow(name=f"aten::{name}", self_cuda_time_ms=ms, self_cpu_time_ms=1.0, count=1)
        for name, ms in operators.items()
    ]
    return Profiler(
        cuda_time_total_ms=cuda_ms,
        cpu_time_total_ms=cpu_ms,
        self_cuda_time_total_ms=cuda_ms,
        top_cuda_ops=rows,
    )


def test_launches_that_the_host_is_late_with_are_named_by_the_profile() -> None:
    found = the("host_bound_launches", gpu_run(profiler=profile(100.0, 300.0, mm=90.0)))
    assert value(found, "over device time") == pytest.approx(3.0)
    assert found.cost == pytest.approx(2 / 3)
    assert names(gpu_run(profiler=profile(100.0, 190.0, mm=90.0))) == []
    waiting = profile(100.0, 300.0, mm=90.0).model_copy(update={"host_waits_ms": 200.0})
    assert names(gpu_run(profiler=waiting)) == []


def test_without_a_profile_a_busy_thread_beside_an_idle_gpu_tells_of_late_launches() -> None:
    busy = {"perf__gpu_utilization_avg": 40.0, "host__main_cpu_seconds_per_step": 0.097}
    found = the("host_bound_launches", gpu_run(**busy))
    assert value(found, "training thread on its core") == pytest.approx(97.0)
    assert value(found, "GPU utilisation") == 40.0
    waiting = busy | {"host__main_cpu_seconds_per_step": 0.05}
    assert "host_bound_launches" not in names(gpu_run(**waiting))


def test_memory_that_grows_at_least_so_much_is_named() -> None:
    found = the("memory_growth", growing(gpu_run(), 0.7, 0.1))
    assert found.severity == "bottleneck"
    assert value(found, "at least") == pytest.approx(0.6)
    assert the("memory_growth", growing(gpu_run(), 0.3, 0.1)).severity == "watch"
    assert names(growing(gpu_run(), 0.7, 0.69)) == []
    assert names(growing(example(), 0.7, 0.1, "resident")) == []
    assert names(growing(example(), 2.5, 0.1, "resident")) == ["memory_growth"]


def test_a_peak_far_above_the_typical_step_is_named_with_its_step() -> None:
    spiked = {"perf__max_mem_mb": 1700.0, "memory__typical_bytes": 1000 * MB}
    found = the("memory_spikes", gpu_run(**spiked, memory__peak_step=63))
    assert found.severity == "bottleneck"
    assert [value(found, what) for what in ("peak", "typical", "first at step")] == [
        1700.0,
        1000.0,
        63,
    ]
    assert (
        the("memory_spikes", gpu_run(**spiked | {"perf__max_mem_mb": 1400.0})).severity == "watch"
    )
    small = {"perf__max_mem_mb": 190.0, "memory__typical_bytes": 100 * MB}
    assert names(gpu_run(**small)) == []


def test_an_allocator_that_had_to_start_over_is_named_whatever_the_peak() -> None:
    level = {"perf__max_mem_mb": 1000.0, "memory__typical_bytes": 1000 * MB}
    found = the("memory_spikes", gpu_run(**level, memory__alloc_retries=3))
    assert value(found, "allocator retries") == 3
    assert names(gpu_run(**level, memory__alloc_retries=0)) == []


def test_device_time_in_operators_that_only_move_memory_is_named() -> None:
    moving = profile(100.0, 90.0, mm=20.0, copy_=30.0, mul=25.0, native_layer_norm=20.0)
    found = the("memory_bandwidth", gpu_run(profiler=moving))
    assert found.severity == "bottleneck"
    assert value(found, "memory-bound operators") == pytest.approx(75.0)
    computing = profile(100.0, 90.0, mm=60.0, addmm=20.0, bmm=10.0, mul=10.0)
    assert names(gpu_run(profiler=computing)) == []


def eager(length: int, rows: int = 4) -> RunRecord:
    batches = [[{"shapes": {"input_ids": [rows, length], "labels": [rows, length]}}]]
    return gpu_run(exact__batches=batches, exact__model__attention="eager")


def test_attention_that_stores_all_scores_is_named_where_rows_are_long() -> None:
    found = the("attention_memory", eager(2048))
    assert found.severity == "watch"
    assert value(found, "longest batch") == 2048
    assert value(found, "scores of one head") == pytest.approx(4 * 4 * 2048**2 / MB)
    assert the("attention_memory", eager(8192, rows=8)).severity == "bottleneck"
    assert names(eager(512)) == []
    assert names(altered(eager(2048), "exact", "model", "attention", to="sdpa")) == []


IDLE = {"perf__gpu_utilization_avg": 30.0, "memory__peak_reserved_bytes": 8 << 30}


def test_few_rows_on_an_idle_gpu_with_free_memory_are_named() -> None:
    found = the("small_batches", gpu_run(**IDLE))
    assert value(found, "rows per micro-batch") == 4
    assert value(found, "free device memory") == pytest.approx(90.0)


@pytest.mark.parametrize(
    "other",
    [
        {"perf__gpu_utilization_avg": 80.0},
        {"config__batch_size": 64},
        {"perf__dataloader_wait_pct": 60.0},
    ],
)
def test_batches_are_not_to_blame_where_one_of_the_three_is_missing(other: dict[str, Any]) -> None:
    assert "small_batches" not in names(gpu_run(**IDLE | other))


def test_waiting_for_other_ranks_is_named_on_a_cpu_too() -> None:
    ranks = {"wait_s": {"count": 100, "mean": 0.04}, "collectives_per_step": 12.0}
    run = altered(example(), "perf", "step_time", to=step_time(0.1, 0.1))
    found = the("synchronization", altered(run, "ranks", to=ranks))
    assert found.severity == "bottleneck"
    assert value(found, "waiting in collectives") == pytest.approx(40.0)
    assert value(found, "collectives per step") == 12
    brief = {"wait_s": {"count": 100, "mean": 0.005}}
    assert names(altered(run, "ranks", to=brief)) == []


def test_reads_that_empty_the_devices_queue_are_named_on_a_gpu_alone() -> None:
    found = the("synchronization", gpu_run(exact__work__host_reads=229))
    assert found.severity == "watch"
    assert value(found, "host reads per step") == 200  # 29 are the optimizer's own step counts
    assert names(altered(example(), "exact", "work", "host_reads", to=229)) == []
    seldom = gpu_run(exact__work__host_reads=229, perf__step_time=step_time(2.0, 2.0))
    assert "synchronization" not in names(seldom)


@pytest.mark.parametrize(
    ("percent", "severity"),
    [(85.1, None), (59.9, "bottleneck")],
)
def test_gpu_utilisation_is_judged_in_the_documented_bands(
    percent: float, severity: str | None
) -> None:
    found = {one.name: one for one in find_bottlenecks(gpu_run(perf__gpu_utilization_avg=percent))}
    assert (found["gpu_utilization"].severity if found else None) == severity


def on_crowded_cpu(threads: int = 4, other: float = 100.0, delay: float | None = 0.3) -> RunRecord:
    """A CPU run with so many threads on 4 cores, and other work in percent of one core."""
    made = example()
    made.env |= {
        "device": {"type": "cpu", "threads": threads},
        "cpu_usable": 4,
        "cpu_count": 4,
    }
    made.memory.sampled = {
        "cpu_percent": {"mean": 100.0},
        "machine_cpu_percent": {"mean": (100.0 + other) / 4},
    }
    made.host.run_delay = delay
    return made


def test_as_many_threads_as_cores_on_a_busy_machine_are_named_with_the_remedy() -> None:
    found = the("crowded_threads", on_crowded_cpu())
    assert value(found, "threads") == 4
    assert value(found, "other work") == pytest.approx(1.0)
    assert "--threads 1" in one_line(found)


def test_many_threads_on_a_quiet_machine_and_few_on_a_busy_one_are_fine() -> None:
    for fine in (
        on_crowded_cpu(other=10.0, delay=0.02),
        on_crowded_cpu(threads=1),
        on_crowded_cpu(threads=3),
        on_crowded_cpu(other=10.0, delay=None),
        on_crowded_cpu(delay=0.0122),
        on_crowded_cpu(delay=0.09),
    ):
        assert "crowded_threads" not in names(fine)
    assert "crowded_threads" in names(on_crowded_cpu(delay=0.11))
    assert "crowded_threads" in names(on_crowded_cpu(delay=None))
    unknown = on_crowded_cpu(delay=None)
    unknown.memory.sampled = {}
    assert "crowded_threads" not in names(unknown)
