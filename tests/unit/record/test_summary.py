"""From rows to figures."""

import math
from typing import Any

import numpy as np
import pytest

from canary.record.summary import distribution, diverged, summarise
from canary.record.types import Launch, RunRecord

Row = Any


def row(step: int, wall: float = 1.0, launch: int = 1, **changes: Any) -> Row:
    return {
        "launch": launch,
        "step": step,
        "wall_s": wall,
        "phases": {"data": 0.25 * wall, "forward": 0.75 * wall},
        "loss": 2.0,
        "micro_losses": [1.0, 1.0],
        "grad_norm": 0.5,
        "input_tokens": 100,
        "label_tokens": 40,
        "completion_tokens": None,
        "samples": 8,
        "rss_bytes": 2**20 * 300,
        "allocated_bytes": None,
        "reserved_bytes": None,
        "peak_bytes": None,
        "rl": {},
    } | changes


def record() -> RunRecord:
    return RunRecord(
        run_id="r",
        timestamp="2026-01-01T00:00:00+00:00",
        launches=[Launch(index=1, status="completed")],
    )


def test_order_statistics_agree_with_numpy() -> None:
    values = list(np.random.default_rng(0).lognormal(size=101))
    found = distribution(values)
    assert found.count == 101
    assert found.mean == pytest.approx(np.mean(values))
    assert found.p95 == pytest.approx(np.percentile(values, 95))
    assert found.p99 == pytest.approx(np.percentile(values, 99))
    assert found.median == found.p50 == pytest.approx(np.median(values))
    assert found.std == pytest.approx(np.std(values, ddof=1))


def test_warm_up_steps_leave_the_speeds_and_stay_in_the_stability() -> None:
    rows = [row(1, 9.0, loss=math.nan), row(2, 1.0), row(3, 1.0)]
    found = summarise(record(), rows, warmup=1)
    assert found.perf.step_time.count == 2
    assert found.perf.step_time.mean == 1.0
    assert found.stability.nan_steps == 1
    assert found.stability.nan_at == [1]
    assert len(found.stability.loss_values) == 3


def test_tokens_per_second_are_tokens_over_the_same_wall_time() -> None:
    found = summarise(record(), [row(1, 1.0), row(2, 3.0)], warmup=0)
    assert found.perf.approx_tokens_per_sec == pytest.approx(200 / 4)
    assert found.tokens == {"input_tokens": 200, "label_tokens": 80}
    assert found.perf.seconds_per_completion_token is None


def test_a_nan_in_one_micro_batch_counts_even_when_the_sum_hides_it() -> None:
    found = summarise(record(), [row(1, loss=1.0, micro_losses=[1.0, "nan"])], warmup=0)
    assert (found.stability.nan_steps, found.stability.inf_steps) == (1, 0)


def test_memory_names_what_it_measured() -> None:
    on_cpu = summarise(record(), [row(1)], warmup=0)
    assert (on_cpu.perf.max_mem_kind, on_cpu.perf.max_mem_mb) == ("resident", 300)
    on_gpu = summarise(record(), [row(1, peak_bytes=2**30)], warmup=0)
    assert (on_gpu.perf.max_mem_kind, on_gpu.perf.max_mem_mb) == ("device", 1024)


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([2.0] * 20, False),
        ([2.0] * 19 + [math.nan], True),
        ([2.0] * 10 + [3.5] * 10, True),
        ([0.0] * 10 + [0.02] * 10, False),
        ([2.0, 9.0], False),
    ],
)
def test_divergence(losses: list[float], expected: bool) -> None:
    assert diverged(losses) is expected


def cpu_row(step: int, cpu_s: float, wall_s: float, delay: float | None, **phases: float) -> Row:
    thread = dict.fromkeys(("computing_s", "waiting_s", "others_s", "own_cpu_s"), 0.0)
    made = row(step, wall_s, cpu_s=cpu_s, host=thread | {"run_delay_s": delay})
    return made | {"phases": made["phases"] | phases}


def launch_of(rows: list[Row], warmup: int = 0) -> Launch:
    return summarise(record(), rows, warmup=warmup).launches[0]


def test_cpu_time_keeps_work_of_every_few_steps_and_cuts_what_came_once() -> None:
    every_fourth = [cpu_row(n, 0.2 if n % 4 == 0 else 0.1, 1.0, 0.0) for n in range(1, 41)]
    assert launch_of(every_fourth).cpu_s_per_step == pytest.approx(0.125)
    once = [cpu_row(n, 10.0 if n == 7 else 0.1, 1.0, 0.0) for n in range(1, 41)]
    assert launch_of(once).cpu_s_per_step == pytest.approx(0.1)


def test_cpu_time_is_of_steps_that_trained_after_warm_up() -> None:
    saved = cpu_row(3, 9.0, 1.0, 0.0, checkpoint=0.5)
    evaluated = cpu_row(4, 9.0, 1.0, 0.0, evaluation=0.5)
    profiled = cpu_row(5, 9.0, 1.0, 0.0) | {"profiled": True}
    rows = [cpu_row(1, 9.0, 1.0, 0.0), cpu_row(2, 0.1, 1.0, 0.0), saved, evaluated, profiled]
    assert launch_of(rows, warmup=1).cpu_s_per_step == pytest.approx(0.1)
    every = [saved, saved | {"step": 4}]
    assert launch_of(every).cpu_s_per_step == pytest.approx(9.0), "there are no others"


def test_a_step_on_a_core_of_its_own_takes_what_it_takes_less_its_waiting_for_one() -> None:
    found = launch_of([cpu_row(1, 0.1, 1.0, 0.75), cpu_row(2, 0.1, 0.5, 0.25)])
    assert found.on_core_step_time_s == pytest.approx(0.25)
    assert launch_of([cpu_row(1, 0.1, 1.0, None)]).on_core_step_time_s is None


def test_a_loop_without_batches_has_no_rate_of_zero() -> None:
    run = RunRecord(run_id="r", timestamp="2026-01-01T00:00:00+00:00")
    rows: list[Row] = [
        {"launch": 1, "step": step, "wall_s": 0.1, "loss": 1.0, "samples": 0} for step in (1, 2)
    ]
    assert summarise(run, rows, warmup=0).perf.samples_per_sec is None
