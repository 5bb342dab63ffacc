"""The spread of stored runs: one outlier does not mislead it."""

from __future__ import annotations

import random

import pytest

from canary.compare.metrics.judging import without_outlier
from canary.compare.stats import compare_to_baseline
from canary.compare.timing.estimate import spread_of, unpaired_estimate
from tests.unit.gating import gate, judged, runs, scattered


@pytest.mark.parametrize("count", [3, 20])
def test_the_false_alarm_rate_is_the_stated_one(count: int) -> None:
    wrong = 0
    for seed in range(1500):
        chance = random.Random(seed)
        *stored, new = (10 + chance.gauss(0, 1) for _ in range(count + 1))
        kept, _ = without_outlier(stored)
        spread = spread_of(kept, "")
        assert spread is not None
        wrong += unpaired_estimate([new], kept, spread).p_value() < 0.01
    assert 0.006 <= wrong / 1500 <= 0.016


def test_a_history_with_one_outlier_still_sees() -> None:
    values = [*scattered(15, 10.0, 0.1), 30.0, *scattered(14, 10.0, 0.1, 1)]
    gates = [gate("reward", limit="history")]
    found = judged(compare_to_baseline(runs([9.0], 100), runs(values), metrics=gates))
    assert found.status == "fail"
    assert "Left out, because it is far from all others: a run with 30" in found.message


def test_a_healthy_history_loses_no_run() -> None:
    lost = sum(without_outlier(scattered(30, seed=seed))[1] is not None for seed in range(1000))
    assert lost <= 5


def test_equal_runs_have_a_spread_above_zero() -> None:
    gates = [gate("reward", limit="history")]
    found = judged(compare_to_baseline(runs([1.0], 100), runs([1.0] * 10), metrics=gates))
    assert found.status == "pass"
    assert found.detectable is not None
    assert -1e-6 < found.detectable < 0
