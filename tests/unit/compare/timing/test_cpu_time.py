"""CPU time per step: a gate on a CPU, and what a noisy wall time may be excused by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from canary.compare.checks import check_of
from canary.compare.report import Check, Comparison
from canary.compare.stats import compare_to_baseline
from canary.compare.timing.cpu_time import settled
from canary.compare.timing.noise import MetricNoise, NoiseModel
from canary.record.types import RunRecord
from tests.unit.comparing import altered, noise_model, on_gpu, record, records, scatter, statuses

BUSY = [0.05 * factor for factor in scatter(20, 0.5)]
"""Median step times of equal work beside other work on the machine."""


def told(
    whole: RunRecord, cpu_s: float, on_core_s: float | None = None, threads: int = 1
) -> RunRecord:
    """The record as if its launch had measured so much CPU time per step."""
    made = altered(whole, "launches", 0, "cpu_s_per_step", to=cpu_s)
    made = altered(made, "launches", 0, "on_core_step_time_s", to=on_core_s or cpu_s)
    return altered(made, "env", "device", "threads", to=threads)


def side(walls: Sequence[float], cpu: Sequence[float], first: int = 0) -> list[RunRecord]:
    return [told(made, cpu_s) for made, cpu_s in zip(records(walls, first), cpu, strict=True)]


def work(count: int, sd: float = 0.02, times: float = 1.0) -> list[float]:
    """CPU seconds per step of equal work."""
    return [0.02 * times * factor for factor in scatter(count, sd)]


def busy_history() -> list[RunRecord]:
    return side(BUSY, work(20))


def compared(current: Any, baseline: Any, **options: Any) -> Comparison:
    return compare_to_baseline(current, baseline, **options)


def cpu_check(found: Comparison) -> Check:
    return found.check("cpu_time")


def test_equal_work_on_a_busy_machine_passes_by_its_cpu_time() -> None:
    found = compared(told(record(100, 0.07), 0.02), busy_history(), history=True)
    assert cpu_check(found).status == "pass"
    assert found.check("step_time_median").status == "skip"
    assert found.check("step_time_mean").status == "skip"
    assert found.check("tokens_per_sec").status == "skip"
    assert "on a free core a step takes at most" in (
        found.check("step_time_median").message.lower()
    )
    assert found.verdict == "pass"
    assert f"are identical; {cpu_check(found).message}" in found.first_line
    assert ", limit 10%" in cpu_check(found).message


def test_twice_the_work_fails_by_its_cpu_time_where_the_clock_is_undecided() -> None:
    found = compared(told(record(100, 0.07), 0.04), busy_history(), history=True)
    assert cpu_check(found).status == "fail"
    assert cpu_check(found).delta_pct == pytest.approx(100.0, abs=1.0)
    assert cpu_check(found).unit == "ms"
    assert found.check("step_time_median").status == "inconclusive"
    assert found.verdict == "regression"
    assert "CPU time per step +100" in found.first_line


def test_a_step_that_waits_longer_is_not_passed_for_its_cpu_time() -> None:
    """A sleep, a lock, a file: no CPU time, and longer on a core of its own."""
    waits = told(record(100, 0.07), 0.02, on_core_s=0.03)
    found = compared(waits, busy_history(), history=True)
    assert cpu_check(found).status == "pass"
    assert found.check("step_time_median").status == "inconclusive"
    assert found.verdict == "inconclusive"


def test_where_the_kernel_does_not_count_waiting_for_a_core_the_clock_has_to_decide() -> None:
    now = told(record(100, 0.07), 0.02)
    now = altered(now, "launches", 0, "on_core_step_time_s", to=None)
    found = compared(now, busy_history(), history=True)
    assert cpu_check(found).status == "pass"
    assert found.verdict == "inconclusive"


def test_fewer_tokens_are_not_passed_for_the_cpu_time() -> None:
    now = told(record(100, 0.07), 0.02)
    now = altered(now, "tokens", "input_tokens", to=int(0.7 * now.tokens["input_tokens"]))
    rate = 0.7 * (now.perf.approx_tokens_per_sec or 0)
    now = altered(now, "perf", "approx_tokens_per_sec", to=rate)
    found = compared(now, busy_history(), history=True)
    assert found.check("step_time_mean").status == "skip"
    assert found.check("tokens_per_sec").status == "inconclusive"


def test_a_clock_that_decides_needs_no_cpu_time() -> None:
    """Data loaders' CPU time may scatter where the step does not wait for them."""
    quiet = side([0.05 * factor for factor in scatter(20, 0.005)], work(20, 0.3))
    found = compared(told(record(100, 0.05), 0.021), quiet, history=True)
    assert found.check("step_time_median").status == "pass"
    assert cpu_check(found).status == "skip"
    assert found.verdict == "pass"


def test_one_run_against_one_decides_nothing() -> None:
    found = compared(told(record(100, 0.05), 0.024), told(record(0, 0.05), 0.02))
    assert cpu_check(found).status == "inconclusive"
    assert "or measure the noise with canary calibrate" in cpu_check(found).message


def test_a_gpu_has_no_gate_on_cpu_time() -> None:
    device = [on_gpu(run) for run in busy_history()]
    found = compared(on_gpu(told(record(100, 0.05), 0.04)), device)
    assert not {name for name in statuses(found) if name.startswith("cpu_time")}


@pytest.mark.parametrize("threads", [(2, 1), (1, 2)])
def test_threads_that_spin_for_each_other_have_no_gate_on_cpu_time(
    threads: tuple[int, int],
) -> None:
    quiet = [0.05 * factor for factor in scatter(20, 0.005)]
    cpus = zip(records(quiet), work(20), strict=True)
    before = [told(run, cpu_s, threads=threads[0]) for run, cpu_s in cpus]
    found = compared(told(record(100, 0.05), 0.2, threads=threads[1]), before)
    assert cpu_check(found).status == "skip"
    assert "compute threads, which spin" in cpu_check(found).message
    assert found.verdict == "pass", "a second thread takes nothing from the clock's answer"


def test_baseline_runs_without_cpu_time_are_left_out() -> None:
    quiet = records([0.05 * factor for factor in scatter(20, 0.005)])
    some = [*quiet[:17], *(told(run, 0.02) for run in quiet[17:])]
    now = told(record(100, 0.05), 0.04)
    assert cpu_check(compared(now, some)).status == "fail"
    assert "not measured in any baseline run" in cpu_check(compared(now, quiet)).message
    assert "in 1 of 1 current runs" in cpu_check(compared(record(101, 0.05), some)).message


def model(cpu_sd: float) -> NoiseModel:
    """A noise model that knows the CPU time too."""
    made = noise_model(0.5)
    known = MetricNoise(run_sd=cpu_sd, run_df=30, pair_sd=cpu_sd, pair_df=15)
    more = {"cpu_time": known, "on_core_step_time": known}
    return made.model_copy(update={"metrics": made.metrics | more})


def test_a_noise_model_that_knows_the_cpu_time_decides_from_one_run() -> None:
    one = told(record(0, 0.05), 0.02)
    found = compared(told(record(100, 0.08), 0.02), one, noise=model(0.02))
    assert cpu_check(found).status == "pass"
    assert found.verdict == "pass"
    slower = compared(told(record(100, 0.08), 0.025), one, noise=model(0.02))
    assert cpu_check(slower).status == "fail"


def test_creep_of_the_cpu_time_shows_against_the_anchor() -> None:
    anchor = side([0.05] * 3, work(3, 0.01, times=0.8), -10)
    now = told(record(100, 0.07), 0.02)
    found = compared(now, busy_history(), history=True, anchor=anchor)
    assert cpu_check(found).status == "pass"
    assert found.check("cpu_time_drift").status == "fail"
    assert "since the last accepted change" in found.check("cpu_time_drift").message
    old = [altered(run, "launches", 0, "cpu_s_per_step", to=None) for run in anchor]
    without = compared(now, busy_history(), history=True, anchor=old)
    assert "cpu_time_drift" not in statuses(without)


def crowded(whole: RunRecord, delay: float, machine: float) -> RunRecord:
    made = whole.model_copy(deep=True)
    made.host.run_delay = delay
    made.env["cpu_count"] = 2
    made.memory.sampled = {
        "cpu_percent": {"mean": 90.0, "max": 90.0, "samples": 9},
        "machine_cpu_percent": {"mean": machine, "max": machine, "samples": 9},
    }
    return made


@pytest.mark.parametrize(("times", "status"), [(1.3, "inconclusive"), (2.0, "fail")])
def test_shared_caches_explain_some_cpu_time_of_a_run_that_was_crowded(
    times: float, status: str
) -> None:
    before = [crowded(run, 0.02, 50.0) for run in side([0.05] * 20, work(20))]
    now = crowded(told(record(100, 0.07), 0.02 * times), 0.6, 100.0)
    assert cpu_check(compared(now, before, history=True)).status == status


@pytest.mark.parametrize(("machine", "status"), [(100.0, "inconclusive"), (45.0, "fail")])
def test_one_wall_time_alone_does_not_decide_beside_other_work(machine: float, status: str) -> None:
    """Steps that wait for a core or do not have two typical times."""
    checks = [
        check_of("step_time_median", "fail", "slower"),
        check_of("step_time_mean", "inconclusive", "too noisy"),
        check_of("cpu_time", "inconclusive", "too noisy"),
    ]
    sides = [crowded(told(record(number), 0.02), 0.65, machine) for number in (0, 100)]
    for one in sides:
        one.memory.sampled["cpu_percent"] = {"mean": 30.0, "max": 90.0, "samples": 9}
    found = settled(checks, sides[1:], sides[:1], paired=False, noise=None)
    assert [check.status for check in found] == [status, "inconclusive", "inconclusive"]


@pytest.mark.parametrize("least", [5e-324, 1e308])
def test_a_strangers_figure_at_the_ends_of_what_numbers_hold_ends_no_comparison(
    least: float,
) -> None:
    odd, plain = side([0.07] * 3, [least] * 3), side([0.07] * 3, [0.02] * 3, first=3)
    assert cpu_check(compared(plain[0], odd)).status
    assert cpu_check(compared(odd[0], plain)).status
