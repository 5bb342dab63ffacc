"""The timing lane: one interval decides, whatever it comes from."""

from __future__ import annotations

import math
from typing import Any

import pytest
from scipy import stats

from canary.compare.report import Check, Comparison
from canary.compare.stats import compare_to_baseline
from canary.compare.thresholds import DEFAULT_THRESHOLDS, Thresholds
from canary.compare.timing.lane import (
    DECISION_BUDGETS,
    FAMILY_BUDGET,
    GATE_WEIGHTS,
    NO_MODEL_SHARE,
    PRIORS,
    Metric,
)
from tests.unit.comparing import history, noise_model, on_gpu, pairs, record, records, scatter

ADAPTIVE = DEFAULT_THRESHOLDS.model_copy(update={"sensitivity": "adaptive"})
GATES: tuple[Metric, ...] = ("step_time_median", "step_time_mean", "max_memory")
MEDIAN_SHARE = GATE_WEIGHTS["step_time_median"] / sum(GATE_WEIGHTS[name] for name in GATES)


def against_history(
    effect: float, sd: float, thresholds: Thresholds = DEFAULT_THRESHOLDS, **rest: Any
) -> Comparison:
    return compare_to_baseline(
        record(100, 0.1 * (1 + effect)), history(sd), thresholds, history=True, **rest
    )


def median_check(found: Comparison) -> Check:
    return found.check("step_time_median")


RULE = [
    (0.15, 0.01, "fail"),
    (0.12, 0.03, "fail"),
    (0.05, 0.01, "warn"),
    (0.0, 0.01, "pass"),
    (0.02, 0.03, "pass"),
    (-0.2, 0.01, "pass"),
    (0.08, 0.03, "inconclusive"),
    (0.0, 0.10, "inconclusive"),
    (0.15, 0.10, "inconclusive"),
]


@pytest.mark.parametrize(("effect", "sd", "status"), RULE)
def test_one_interval_decides_a_run_against_a_history(
    effect: float, sd: float, status: str
) -> None:
    assert median_check(against_history(effect, sd)).status == status


def test_the_interval_is_students_at_the_gates_share_of_the_budget() -> None:
    check = median_check(against_history(0.02, 0.01))
    se = 0.01 * math.sqrt(1 + 1 / 20)
    low = math.log(1.02) - stats.t.ppf(1 - NO_MODEL_SHARE * FAMILY_BUDGET * MEDIAN_SHARE, 19) * se
    high = math.log(1.02) + stats.t.ppf(0.95, 19) * se
    assert check.interval == pytest.approx((100 * math.expm1(low), 100 * math.expm1(high)))
    assert check.threshold == pytest.approx(10.0)
    assert check.delta_pct == pytest.approx(2.0)
    assert check.baseline == pytest.approx(100.0)
    assert check.current == pytest.approx(102.0)
    assert check.unit == "ms"
    assert check.noise == "measured in these runs"
    visible = stats.t.ppf(1 - NO_MODEL_SHARE * FAMILY_BUDGET * MEDIAN_SHARE, 19) + stats.t.ppf(
        0.8, 19
    )
    assert check.detectable == pytest.approx(100 * math.expm1(visible * se))


def test_an_undecided_check_says_how_many_launches_would_decide() -> None:
    """At a spread of 10%, t(0.95, 19) * 0.10 * sqrt(2 / n) is below log 1.10 from n = 7 on."""
    check = median_check(against_history(0.0, 0.10))
    assert check.message.endswith("About 7 runs of the current side would decide")


def test_undecided_pairs_say_how_many_pairs_would_decide() -> None:
    current, baseline = pairs(5, 0.0, sd=0.15)
    check = median_check(compare_to_baseline(current, baseline, paired=True))
    enough = next(
        n for n in range(6, 99) if stats.t.ppf(0.95, 4) * 0.15 / math.sqrt(n) < math.log(1.1)
    )
    assert check.message.endswith(f"About {enough} pairs would decide")


@pytest.mark.parametrize(
    ("count", "effect", "status", "modelled"),
    [
        *((8, effect, status, False) for effect, status in ((0.15, "fail"), (0.05, "warn"))),
        *((8, 0.0, "pass", modelled) for modelled in (False, True)),
        *((3, 0.15, "fail", modelled) for modelled in (False, True)),
    ],
)
def test_pairs_cancel_what_the_machine_does_to_both(
    count: int, effect: float, status: str, modelled: bool
) -> None:
    """Three pairs alone are too few to know how much pairs differ: the launches' spread counts."""
    noise = noise_model(0.2, pair_sd=0.01) if modelled else None
    current, baseline = pairs(count, effect)
    check = median_check(compare_to_baseline(current, baseline, paired=True, noise=noise))
    alone = count == 3 and not modelled
    assert check.status == ("inconclusive" if alone else status)
    source = "measured in these runs" if alone else "measured in these pairs"
    assert check.noise == ("noise model of 31 runs" if modelled else source)


def test_the_pairs_interval_is_that_of_their_differences() -> None:
    current, baseline = pairs(8, 0.03)
    check = median_check(compare_to_baseline(current, baseline, paired=True))
    se = 0.005 / math.sqrt(8)
    low = math.log(1.03) - stats.t.ppf(1 - NO_MODEL_SHARE * FAMILY_BUDGET * 0.75 / 0.95, 7) * se
    high = math.log(1.03) + stats.t.ppf(0.95, 7) * se
    assert check.interval == pytest.approx((100 * math.expm1(low), 100 * math.expm1(high)))


def test_without_pairing_the_machines_drift_hides_the_change() -> None:
    current, baseline = pairs(8, 0.15)
    assert median_check(compare_to_baseline(current, baseline)).status == "inconclusive"


def test_pairs_that_scatter_more_than_the_model_widen_the_interval() -> None:
    noise = noise_model(0.2, pair_sd=0.001)
    current, baseline = pairs(5, 0.0, sd=0.05)
    check = median_check(compare_to_baseline(current, baseline, paired=True, noise=noise))
    assert check.noise == "measured in these pairs"
    assert check.interval is not None
    high = stats.t.ppf(0.95, 15) * 0.05 / math.sqrt(5)
    assert check.interval[1] == pytest.approx(100 * math.expm1(high))


def test_pairs_of_unequal_number_are_compared_as_groups() -> None:
    current, baseline = pairs(8, 0.0)
    check = median_check(compare_to_baseline(current[:6], baseline, paired=True))
    assert check.noise == "measured in these runs"


def test_a_decision_spends_no_more_than_its_share() -> None:
    assert sum(DECISION_BUDGETS.values()) <= FAMILY_BUDGET
    current, baseline = pairs(8, 0.02)
    ends = []
    for budget in (FAMILY_BUDGET, DECISION_BUDGETS[8], DECISION_BUDGETS[3]):
        check = median_check(compare_to_baseline(current, baseline, paired=True, budget=budget))
        assert check.interval is not None
        ends.append(check.interval[0])
    assert ends == sorted(ends, reverse=True)
    assert len(set(ends)) == 3


SENSITIVE = [
    (0.012, 0.003, "fail"),
    (0.0, 0.003, "pass"),
    (0.10, 0.03, "fail"),
    (0.06, 0.03, "inconclusive"),
    (0.28, 0.10, "inconclusive"),
]


@pytest.mark.parametrize(("effect", "sd", "status"), SENSITIVE)
def test_adaptive_sensitivity_gates_at_what_the_noise_shows(
    effect: float, sd: float, status: str
) -> None:
    assert median_check(against_history(effect, sd, ADAPTIVE)).status == status


def test_the_adaptive_tolerance_lies_between_two_percent_and_the_tiers() -> None:
    noisy, quiet = (median_check(against_history(0.0, sd, ADAPTIVE)) for sd in (0.015, 0.002))
    assert noisy.threshold == pytest.approx(noisy.detectable)
    loud = median_check(against_history(0.0, 0.10, ADAPTIVE))
    assert loud.threshold == pytest.approx(ADAPTIVE.max_step_time_increase_pct)
    assert quiet.threshold == pytest.approx(2.0)
    assert quiet.detectable is not None
    assert quiet.detectable < 2.0


@pytest.mark.parametrize(("gpu", "prior"), [(False, "step_time_cpu"), (True, "step_time_gpu")])
def test_one_run_against_one_uses_a_stated_prior(gpu: bool, prior: str) -> None:
    current, baseline = record(1), record(0)
    if gpu:
        current, baseline = on_gpu(current), on_gpu(baseline)
    check = median_check(compare_to_baseline(current, baseline))
    assert check.noise == "assumed, because it was not measured; therefore wide"
    assert check.interval is not None
    high = stats.norm.ppf(0.95) * math.sqrt(2) * PRIORS[prior]
    assert check.interval[1] == pytest.approx(100 * math.expm1(high))
    assert check.status == "inconclusive"


def test_the_prior_still_sees_a_run_that_is_three_times_slower() -> None:
    assert median_check(compare_to_baseline(record(1, 0.3), record(0))).status == "fail"


def test_a_noise_model_replaces_the_prior() -> None:
    check = median_check(compare_to_baseline(record(1, 0.12), record(0), noise=noise_model(0.01)))
    assert check.noise == "noise model of 31 runs"
    assert check.status == "fail"


def test_clocks_are_not_believed_beyond_their_grain() -> None:
    check = median_check(compare_to_baseline(record(100), records([0.1] * 20)))
    assert check.interval is not None
    high = stats.t.ppf(0.95, 19) * 0.002 * math.sqrt(1 + 1 / 20)
    assert check.interval[1] == pytest.approx(100 * math.expm1(high))


def test_nor_the_difference_of_two_clocks() -> None:
    current, baseline = pairs(5, 0.0, sd=0.0)
    check = median_check(compare_to_baseline(current, baseline, paired=True))
    assert check.interval is not None
    high = stats.t.ppf(0.95, 4) * 0.002 * math.sqrt(2 / 5)
    assert check.interval[1] == pytest.approx(100 * math.expm1(high))


def test_repeats_of_one_record_count_as_launches() -> None:
    whole = record(100)
    launches = [
        whole.launches[0].model_copy(
            update={"index": place, "median_step_time_s": 0.1 * f, "mean_step_time_s": 0.1 * f}
        )
        for place, f in enumerate(scatter(4, 0.01))
    ]
    failed = launches[0].model_copy(update={"status": "failed", "median_step_time_s": 9.0})
    many = whole.model_copy(update={"launches": [*launches, failed]})
    check = median_check(compare_to_baseline(many, history(0.01)))
    assert check.current == pytest.approx(100.0)
    assert check.interval is not None
    high = stats.t.ppf(0.95, 22) * 0.01 * math.sqrt(1 / 4 + 1 / 20)
    assert check.interval[1] == pytest.approx(100 * math.expm1(high))
