"""Every tolerance decides a check: the same change under a tight value and under a wide one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from canary.compare.stats import compare_to_baseline
from canary.compare.thresholds import Thresholds
from canary.record.types import RunRecord
from tests.unit.comparing import MB, altered, growing, history, on_gpu, record, scatter, trained
from tests.unit.gating import gate, with_curve


@dataclass(frozen=True)
class Decided:
    """One field: what changed, which check it decides, and how, under two values."""

    field: str
    check: str
    tight: Any
    wide: Any
    path: str = ""
    """Place that changes in the current record, with dots."""
    factor: float = 1.0
    plus: float = 0
    kind: str = "sft"
    statuses: tuple[str, str] = ("fail", "warn")


PASSES = ("fail", "pass")

CASES = [
    Decided("max_step_time_increase_pct", "step_time_median", 3.0, 10.0, "slower"),
    Decided("max_step_time_increase_pct", "step_time_mean", 3.0, 10.0, "slower"),
    Decided("max_cpu_time_increase_pct", "cpu_time", 3.0, 10.0, "cpu_time"),
    Decided("max_tps_drop_pct", "tokens_per_sec", 3.0, 8.0, "slower"),
    Decided("sensitivity", "step_time_median", "adaptive", "fixed", "slower"),
    Decided("max_mem_increase_mb", "max_memory", 50.0, 500.0, "perf.max_mem_mb", 1.15),
    Decided("max_mem_increase_pct", "max_memory", 10.0, 20.0, "perf.max_mem_mb", 1.15),
    Decided(
        "max_mem_growth_mb_per_step", "memory_growth", 0.5, 2.0, "memory.growth", statuses=PASSES
    ),
    Decided(
        "max_gpu_utilization_drop",
        "gpu_utilization",
        10.0,
        20.0,
        "perf.gpu_utilization_avg",
        plus=-15,
        statuses=("warn", "pass"),
    ),
    Decided("metric_false_alarms", "metrics.loss.mean", 0.05, 0.0005, "curves", statuses=PASSES),
    Decided("max_steps_lost_pct", "steps_trained", 5, 50, "steps"),
    Decided("max_nan_steps", "nan_steps", 0, 1, "stability.nan_steps", plus=1, statuses=PASSES),
    Decided("max_inf_steps", "inf_steps", 0, 1, "stability.inf_steps", plus=1, statuses=PASSES),
    Decided(
        "max_loss_rise", "loss_divergence", 1.5, 2.5, "stability.loss_values.end", statuses=PASSES
    ),
    Decided(
        "max_final_loss_increase_pct",
        "final_loss",
        10.0,
        20.0,
        "stability.loss_values",
        1.15,
        statuses=PASSES,
    ),
    Decided(
        "max_final_loss_drop_pct",
        "final_loss",
        20.0,
        40.0,
        "stability.loss_values",
        0.7,
        statuses=("warn", "pass"),
    ),
    Decided(
        "max_grad_norm_ratio",
        "gradient_explosion",
        5.0,
        8.0,
        "stability.grad_norm_values",
        6.0,
        statuses=PASSES,
    ),
    Decided("max_kl_ratio", "kl", 5.0, 8.0, "rl.kl.mean", plus=0.06, kind="grpo", statuses=PASSES),
    Decided(
        "max_reward_drop_std",
        "reward",
        1.0,
        2.0,
        "rl.reward.mean",
        plus=-0.25,
        kind="grpo",
        statuses=PASSES,
    ),
    Decided(
        "max_margin_drop_pct",
        "margin",
        50.0,
        70.0,
        "rl.rewards/margins.mean",
        0.4,
        kind="dpo",
        statuses=PASSES,
    ),
    Decided(
        "max_entropy_drop_pct",
        "entropy",
        50.0,
        70.0,
        "rl.entropy.mean",
        0.4,
        kind="grpo",
        statuses=PASSES,
    ),
    Decided("max_flops_increase_pct", "flops", 10.0, 25.0, "exact.work.flops", 1.15),
    Decided(
        "max_operators_increase_pct", "operators", 10.0, 20.0, "exact.work.operator_total", 1.15
    ),
    Decided("max_tokens_fed_increase_pct", "tokens_fed", 3.0, 10.0, "exact.work.tokens_fed", 1.05),
    Decided("max_host_reads_increase", "host_reads", 0, 1, "exact.work.host_reads", plus=1),
    Decided("max_collectives_increase", "collectives", 0, 1, "exact.work.collectives", plus=1),
    Decided("max_recompiles_increase", "recompiles", 0, 1, "exact.work.recompiles", plus=1),
    Decided("max_live_tensors_per_step", "live_tensors", 0.3, 0.5, "exact.memory.live_tensors"),
    Decided("max_files_increase", "files_written", 3, 10, "exact.calls.files_opened", plus=5),
    Decided(
        "max_bytes_written_increase_mb",
        "bytes_written",
        0.2,
        1.0,
        "exact.calls.bytes_written",
        plus=MB / 2,
    ),
    Decided(
        "max_tokenizer_calls_increase_pct",
        "tokenizer_calls",
        3.0,
        10.0,
        "exact.calls.tokenizer_calls",
        1.05,
    ),
    Decided(
        "max_dataset_maps_increase",
        "dataset_maps",
        0,
        1,
        "exact.calls.dataset_maps_unhashable",
        plus=1,
    ),
]


def held(whole: RunRecord, path: list[str]) -> Any:
    found: Any = whole
    for place in path:
        found = found[place] if isinstance(found, dict) else getattr(found, place)
    return found


def changed(whole: RunRecord, case: Decided) -> RunRecord:
    """The record with what the case says of it."""
    if case.path == "slower":
        return whole
    if case.path == "steps":
        return trained(whole, 70)
    path = case.path.split(".")
    if path[-1] == "growth":
        return growing(whole, 1.0, 0.1)
    if path[-1] == "live_tensors":
        return altered(whole, *path, to=[100 + 0.4 * step for step in range(12)])
    if path[-1] == "end":
        return altered(whole, *path[:-1], to=[1.0] * 50 + [2.0] * 50)
    was = held(whole, path)
    if isinstance(was, list):
        return altered(whole, *path, to=[case.factor * value for value in was])
    return altered(whole, *path, to=case.factor * was + case.plus)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.field}-{case.check}")
def test_a_field_decides_its_check(case: Decided) -> None:
    baseline = [growing(on_gpu(run), 0.0, 0.1) for run in history(0.005, kind=case.kind)]
    slower = 1.05 if case.path == "slower" else 1.0
    current = growing(on_gpu(record(100, 0.1 * slower, kind=case.kind)), 0.0, 0.1)
    metrics = [gate("loss", limit="history")] if case.path == "curves" else []
    if case.path == "cpu_time":
        baseline = [record(place, cpu_s=0.1 * f) for place, f in enumerate(scatter(20, 0.005))]
        current = record(100, cpu_s=0.105)
    elif metrics:
        # 3.5 standard deviations above 20 runs, which happens by chance in 0.1% of comparisons.
        values = scatter(20, 0.01)
        baseline = [with_curve(record(n), [1 + f / 100] * 20) for n, f in enumerate(values)]
        current = with_curve(record(100), [1.01 + 3.5 * 0.0001 * 1.02] * 20)
    else:
        current = changed(current, case)
    found = []
    for value in (case.tight, case.wide):
        thresholds = Thresholds.model_validate({case.field: value})
        compared = compare_to_baseline(current, baseline, thresholds, metrics=metrics)
        found.append(compared.check(case.check).status)
    assert tuple(found) == case.statuses


def test_no_field_is_left_out() -> None:
    assert {case.field for case in CASES} == set(Thresholds.model_fields)
