"""Two one-sided tests against scipy, and their power against simulation."""

from __future__ import annotations

import random

import pytest
from scipy import stats

from canary.compare.metrics.equivalence import Sides
from canary.compare.stats import compare_to_baseline
from tests.unit.gating import gate, judged, runs, scattered

SAMPLES = [
    ([1.0, 1.1, 0.95, 1.02], [1.0, 1.2, 0.9, 1.1, 0.97]),
    (scattered(30, 2.0, 0.3, 1), scattered(5, 2.1, 0.1, 2)),
]


@pytest.mark.parametrize(("current", "baseline"), SAMPLES)
@pytest.mark.parametrize("margin", [0.02, 0.1, 0.5])
def test_the_two_tests_are_welch_tests_on_the_scaled_baseline(
    current: list[float], baseline: list[float], margin: float
) -> None:
    low, high = sorted((1 - margin, 1 + margin), key=lambda factor: factor * baseline[0])

    def welch(factor: float, side: str) -> float:
        scaled = [factor * value for value in baseline]
        found = stats.ttest_ind(current, scaled, equal_var=False, alternative=side)
        return float(found.pvalue)

    expected = max(welch(low, "greater"), welch(high, "less"))
    assert Sides.of(current, baseline).p_equivalent(margin) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("current", "baseline"), SAMPLES)
def test_the_test_for_worse_is_welchs(current: list[float], baseline: list[float]) -> None:
    found = stats.ttest_ind(current, baseline, equal_var=False, alternative="less")
    assert Sides.of(current, baseline).p_different(-1) == pytest.approx(found.pvalue, rel=1e-9)


def test_the_power_is_that_of_simulated_groups() -> None:
    chance = random.Random(7)

    def group() -> list[float]:
        return [1 + 0.05 * chance.gauss(0, 1) for _ in range(10)]

    trials = [Sides.of(group(), group()) for _ in range(500)]
    shown = sum(sides.p_equivalent(0.05) < 0.05 for sides in trials) / len(trials)
    promised = sum(sides.power(0.05, 0.05) for sides in trials) / len(trials)
    assert promised == pytest.approx(shown, abs=0.06)


@pytest.mark.parametrize("change", [0.0, 0.1])
def test_groups_at_the_margin_are_shown_equivalent_by_mistake_at_most_as_often_as_promised(
    change: float,
) -> None:
    chance = random.Random(11)
    wrong = 0
    for _ in range(500):
        baseline = [1 + change * chance.gauss(0, 1) for _ in range(5)]
        current = [0.95 + change * chance.gauss(0, 1) for _ in range(5)]
        wrong += Sides.of(current, baseline).p_equivalent(0.05) < 0.05
    assert wrong / 500 < 0.08


def answer(current: list[float], baseline: list[float], margin: str = "5%") -> tuple[str, str]:
    found = judged(
        compare_to_baseline(
            runs(current, 100), runs(baseline), metrics=[gate("reward", equivalent=margin)]
        )
    )
    return found.status, found.message


def test_equal_groups_are_equivalent() -> None:
    status, words = answer(scattered(6, 1.0, 0.01, 1), scattered(6, 1.0, 0.01, 2))
    assert status == "pass"
    assert "equivalent within 5%" in words
    assert "power" in words


def test_a_worse_group_fails() -> None:
    status, words = answer(scattered(6, 0.8, 0.01, 1), scattered(6, 1.0, 0.01, 2))
    assert status == "fail"
    assert "worse" in words


def test_a_better_group_is_no_failure_and_not_equivalent() -> None:
    status, words = answer(scattered(6, 1.3, 0.01, 1), scattered(6, 1.0, 0.01, 2))
    assert status == "warn"
    assert "better" in words


def test_the_promised_number_of_runs_decides() -> None:
    sides = Sides.of([1.0, 1.05, 0.95], [1.02, 0.98, 1.04])
    counts = [count for count in range(3, 40) if sides.with_runs(count).p_equivalent(0.05) < 0.05]
    words = answer([1.0, 1.05, 0.95], [1.02, 0.98, 1.04])[1]
    assert f" {counts[0] - 3} more runs per side" in words


def test_one_run_cannot_be_shown_equivalent() -> None:
    status, words = answer([1.0], scattered(10))
    assert status == "inconclusive"
    assert "at least 2 per side" in words


def test_decisions_of_an_ab_run_share_the_risk_of_a_false_equivalence() -> None:
    """Each decision could stop the run with a pass, so none may spend the whole risk."""
    margin = gate("reward", equivalent="5%")
    sides = (runs([0.98, 1.0, 1.02], 100), runs([0.99, 1.0, 1.01]))
    once = compare_to_baseline(*sides, paired=True, metrics=[margin])
    early = compare_to_baseline(*sides, paired=True, metrics=[margin], budget=0.001)
    assert once.check("metrics.reward.area").status == "pass"
    assert early.check("metrics.reward.area").status == "inconclusive"
