"""The expectation from stored runs: one outlier and a trend do not mislead it."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from canary.compare.metrics.history import expected, without_outlier
from canary.compare.stats import compare_to_baseline
from canary.compare.timing.student import t_upper_tail
from tests.unit.gating import gate, judged, runs, scattered


def alarms(make: object, trials: int = 1500, level: float = 0.01) -> float:
    """How often a new run of the same kind is called too high at this level."""
    wrong = 0
    for seed in range(trials):
        *stored, new = make(random.Random(seed))  # type: ignore[operator]
        known = expected(stored)
        wrong += t_upper_tail((new - known.centre) / known.error(1), known.df) < level
    return wrong / trials


@pytest.mark.parametrize("count", [3, 20])
def test_the_false_alarm_rate_is_the_stated_one(count: int) -> None:
    def make(chance: random.Random) -> list[float]:
        return [10 + chance.gauss(0, 1) for _ in range(count + 1)]

    assert 0.006 <= alarms(make) <= 0.016


def test_a_history_with_one_outlier_still_sees() -> None:
    values = [*scattered(15, 10.0, 0.1), 30.0, *scattered(14, 10.0, 0.1, 1)]
    known = expected(values)
    assert known.left_out == 30.0
    assert known.sd < 0.2
    assert known.centre == pytest.approx(10.0, abs=0.1)


def test_a_healthy_history_loses_no_run() -> None:
    lost = sum(without_outlier(scattered(30, seed=seed))[1] is not None for seed in range(1000))
    assert lost <= 5


def test_a_trend_does_not_make_the_gate_blind() -> None:
    values = [10 + 0.1 * place + noise for place, noise in enumerate(scattered(30, 0.0, 0.1))]
    known = expected(values)
    assert known.drift == pytest.approx(0.1, abs=0.02)
    assert known.sd < 0.2 < statistics.stdev(values)
    assert known.centre == pytest.approx(12.9, abs=0.15)  # where it is now


def test_a_trend_is_not_continued_so_that_it_excuses_nothing() -> None:
    values = [10 - 0.1 * place + noise for place, noise in enumerate(scattered(30, 0.0, 0.05))]
    assert expected(values).centre == pytest.approx(values[-1], abs=0.1)


def test_a_trend_is_rarely_seen_where_none_is() -> None:
    seen = sum(expected(scattered(30, seed=seed)).drift != 0 for seed in range(1000))
    assert seen <= 25


def test_equal_runs_have_a_spread_above_zero() -> None:
    known = expected([1.0] * 10)
    assert 0 < known.sd < 1e-6
    assert math.isfinite(known.error(1))


def test_a_drift_in_the_bad_direction_is_told_although_the_run_passes() -> None:
    values = [1 - 0.01 * place + noise for place, noise in enumerate(scattered(20, 0.0, 0.002))]
    found = judged(
        compare_to_baseline(
            runs([values[-1]], 100), runs(values), metrics=[gate("reward", limit="history")]
        )
    )
    assert found.status == "warn"
    assert "drift by" in found.message
