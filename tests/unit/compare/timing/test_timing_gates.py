"""The gates beside the median, what follows from them, and when the runner is not trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from canary.compare.report import Check, Comparison
from canary.compare.stats import compare_to_baseline
from canary.compare.timing.estimate import Estimate, Spread, unpaired_estimate
from canary.compare.timing.lane import FAMILY_BUDGET, GATE_WEIGHTS, Metric, Samples, gates_of
from canary.record.types import RunRecord
from tests.unit.comparing import altered, history, noise_model, pairs, record, records, scatter

METRICS: tuple[Metric, ...] = tuple(m for m in GATE_WEIGHTS if not m.startswith("cpu_time"))
"""The family on a device: no gate on CPU time."""


def samples(metric: Metric) -> Samples:
    return Samples(metric, (0.0,), (0.0,), "step_time", "ms")


def estimates(z: Sequence[float]) -> dict[Metric, tuple[Samples, Estimate]]:
    """One gate each, `z` standard errors above zero, of known spread."""
    known = Spread(1 / math.sqrt(2), math.inf, "known")
    metrics = METRICS if len(z) == len(METRICS) else tuple(GATE_WEIGHTS)
    return {
        metric: (samples(metric), unpaired_estimate([value], [0.0], known))
        for metric, value in zip(metrics, z, strict=True)
    }


def test_the_gates_share_one_budget_of_half_a_percent() -> None:
    assert FAMILY_BUDGET == 0.005
    assert sum(GATE_WEIGHTS[metric] for metric in METRICS) == pytest.approx(1.0)
    gates = gates_of(estimates([0.0] * 4), FAMILY_BUDGET)
    assert sum(gate.alpha for gate in gates) == pytest.approx(FAMILY_BUDGET)
    assert not any(gate.estimate.lower(gate.alpha) > 0 for gate in gates)
    with_cpu_time = gates_of(estimates([0.0] * 6), FAMILY_BUDGET)
    assert sum(gate.alpha for gate in with_cpu_time) == pytest.approx(FAMILY_BUDGET)


def test_a_gate_that_is_real_leaves_its_share_to_the_others() -> None:
    gates = {g.samples.metric: g for g in gates_of(estimates([9.0, 0.0, 0.0, 0.0]), FAMILY_BUDGET)}
    assert gates["step_time_median"].alpha == pytest.approx(0.75 * FAMILY_BUDGET)
    left = sum(gate.alpha for name, gate in gates.items() if name != "step_time_median")
    assert left == pytest.approx(FAMILY_BUDGET)


@pytest.mark.parametrize("gates", [4, 6])
def test_the_family_raises_no_more_false_alarms_than_its_budget(gates: int) -> None:
    """Simulated at a budget of 10%, where 4,000 trials suffice: independent gates, nothing real."""
    rng = np.random.default_rng(3)
    trials, budget = 4000, 0.10
    alarms = sum(
        any(
            gate.estimate.lower(gate.alpha) > 0
            for gate in gates_of(estimates([float(v) for v in z]), budget)
        )
        for z in rng.normal(size=(trials, gates))
    )
    assert alarms / trials < budget + 3 * math.sqrt(budget * (1 - budget) / trials)
    assert alarms / trials > budget / 2


def compared(current: RunRecord, baseline: Sequence[RunRecord]) -> Comparison:
    return compare_to_baseline(current, baseline)


def test_stalls_show_in_the_mean_and_not_in_the_median() -> None:
    found = compared(record(100, 0.1, mean_s=0.13), history(0.005))
    assert found.check("step_time_median").status == "pass"
    assert found.check("step_time_mean").status == "fail"
    assert found.verdict == "regression"


def uneven_means(sd: float) -> list[RunRecord]:
    return [
        record(place, 0.1 * steady, mean_s=0.1 * noisy)
        for place, (steady, noisy) in enumerate(
            zip(scatter(20, 0.005), scatter(20, sd), strict=True)
        )
    ]


def test_an_undecided_mean_is_not_passed_for_its_median() -> None:
    found = compared(record(100), uneven_means(0.15))
    assert found.check("step_time_median").status == "pass"
    assert found.check("step_time_mean").status == "inconclusive"
    assert found.verdict == "inconclusive"


@pytest.mark.parametrize(("effect", "sd"), [(0.05, 0.003), (0.0, 0.05)])
def test_tokens_per_second_are_the_mean_step_time_turned_over(effect: float, sd: float) -> None:
    found = compared(record(100, 0.1 * (1 + effect)), history(sd))
    mean, tokens = found.check("step_time_mean"), found.check("tokens_per_sec")
    assert mean.interval is not None
    assert tokens.interval is not None

    def turned(percent: float | None) -> float:
        assert percent is not None
        return 100 * (1 / (1 + percent / 100) - 1)

    assert tokens.delta_pct == pytest.approx(turned(mean.delta_pct))
    assert tokens.interval == pytest.approx((turned(mean.interval[1]), turned(mean.interval[0])))
    assert tokens.threshold == pytest.approx(-8.0)
    undecided = tokens.status == mean.status == "inconclusive"
    why = (
        "undecided, because mean step time is undecided"
        if undecided
        else "derived from mean step time"
    )
    assert why in tokens.message


def with_tokens(whole: RunRecord, factor: float) -> RunRecord:
    assert whole.perf.approx_tokens_per_sec is not None
    rate = factor * whole.perf.approx_tokens_per_sec
    more = altered(whole, "tokens", "input_tokens", to=factor * whole.tokens["input_tokens"])
    return altered(more, "perf", "approx_tokens_per_sec", to=rate)


def test_more_tokens_in_the_same_time_are_not_a_slowdown_of_tokens() -> None:
    tokens = compared(with_tokens(record(100, 0.1), 1.25), history(0.005)).check("tokens_per_sec")
    assert tokens.delta_pct == pytest.approx(25.0)
    assert tokens.status == "pass"


def test_fewer_tokens_in_the_same_time_are_a_slowdown_of_tokens() -> None:
    found = compared(with_tokens(record(100, 0.1), 0.8), history(0.005))
    assert found.check("step_time_mean").status == "pass"
    assert found.check("tokens_per_sec").delta_pct == pytest.approx(-20.0)
    assert found.check("tokens_per_sec").status == "fail"


def test_fewer_tokens_at_an_undecided_speed_are_not_passed() -> None:
    found = compared(with_tokens(record(100, 0.09), 0.78), history(0.0976))
    assert found.check("step_time_mean").status == "pass"
    tokens = found.check("tokens_per_sec")
    assert tokens.interval is not None
    assert tokens.interval[0] < -8.0 < 0.0 < tokens.interval[1]
    assert tokens.status == "inconclusive"


def memory_check(mb: float, before: float = 600.0) -> Check:
    baseline = [altered(run, "perf", "max_mem_mb", to=before) for run in history()]
    return compared(record(100, memory_mb=mb), baseline).check("max_memory")


def test_memory_gates_at_twenty_percent_or_500_mb_whichever_comes_first() -> None:
    assert memory_check(600.0).status == "pass"
    assert memory_check(700.0).status == "warn"
    assert memory_check(730.0).status == "fail"
    assert memory_check(8450.0, 8000.0).status == "warn"
    big = memory_check(8550.0, 8000.0)
    assert big.status == "fail"
    assert big.group == "memory"
    assert big.unit == "MB"
    assert big.delta == pytest.approx(550.0)
    assert big.threshold == pytest.approx(6.25)


def test_a_baseline_that_scatters_three_times_the_model_is_not_judged() -> None:
    noise = noise_model(0.01)
    found = compare_to_baseline(record(100, 0.2), history(0.035), noise=noise)
    for name in ("step_time_median", "step_time_mean", "tokens_per_sec"):
        assert found.check(name).status == "inconclusive"
    assert "3.5 times as much" in found.check("step_time_median").message
    assert found.check("max_memory").status == "pass"
    assert found.verdict == "inconclusive"


def test_a_baseline_that_scatters_less_is_judged() -> None:
    noise = noise_model(0.01)
    found = compare_to_baseline(record(100, 0.2), history(0.025), noise=noise)
    assert found.check("step_time_median").status == "fail"


def drift_check(found: Comparison) -> Check:
    return found.check("step_time_drift")


ANCHOR = records([0.08 * f for f in scatter(3, 0.01)], -10)


def test_creep_below_every_gate_shows_against_the_anchor() -> None:
    found = compare_to_baseline(
        record(100), history(0.01), history=True, anchor=ANCHOR, noise=noise_model(0.01)
    )
    assert found.check("step_time_median").status == "pass"
    assert drift_check(found).status == "fail"
    assert drift_check(found).delta_pct == pytest.approx(25.0)
    assert drift_check(found).threshold == pytest.approx(10.0)
    assert found.verdict == "regression"


def test_anchors_are_no_pairs_of_the_current_runs() -> None:
    current, baseline = pairs(3, 0.0, sd=0.0, drift=0.01)
    anchor = records([0.08] * 3, -10)
    noise = noise_model(0.5, pair_sd=0.001)
    found = compare_to_baseline(current, baseline, paired=True, anchor=anchor, noise=noise)
    assert drift_check(found).status == "skip"


def test_no_creep_passes_and_an_undecided_one_is_skipped() -> None:
    steady = records([0.1 * f for f in scatter(3, 0.01)], -10)
    noise = noise_model(0.01)
    found = compare_to_baseline(record(100), history(0.01), anchor=steady, noise=noise)
    assert drift_check(found).status == "pass"
    loud = noise_model(0.2)
    found = compare_to_baseline(record(100), history(0.01), anchor=steady, noise=loud)
    assert drift_check(found).status == "skip"


def sampled(whole: RunRecord, completion_tokens: int) -> RunRecord:
    return altered(whole, "tokens", "completion_tokens", to=completion_tokens)


def test_longer_completions_are_not_a_slower_step() -> None:
    baseline = [sampled(run, 8000) for run in history(kind="grpo")]
    longer = sampled(record(100, 0.2, kind="grpo"), 16000)
    check = compared(longer, baseline).check("step_time_median")
    assert check.unit == "ms/token"
    assert check.delta_pct == pytest.approx(0.0, abs=0.01)
    assert check.status == "pass"
    assert check.baseline == pytest.approx(100 / 80)


def test_a_generation_that_is_slower_a_token_is_a_regression() -> None:
    baseline = [sampled(run, 8000) for run in history(kind="grpo")]
    found = compared(sampled(record(100, 0.1, kind="grpo"), 6000), baseline)
    assert found.check("step_time_median").delta_pct == pytest.approx(100 / 3)
    assert found.check("step_time_median").status == "fail"


def test_gates_that_are_not_asked_for_are_not_judged() -> None:
    current, baseline = pairs(8, 0.0)
    found = compare_to_baseline(current, baseline, paired=True, gates=("step_time_median",))
    timed = [check.name for check in found.checks if check.lane == "timing"]
    assert timed == ["step_time_median", "tokens_per_sec"]
    check = found.check("step_time_median")
    full = compare_to_baseline(current, baseline, paired=True).check("step_time_median")
    assert check.interval is not None
    assert full.interval is not None
    assert check.interval[0] > full.interval[0]
