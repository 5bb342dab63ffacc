"""The change between two groups of launches: interval, spread, and what could be seen."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from scipy import stats

from canary.compare.timing.estimate import (
    Spread,
    larger,
    paired_estimate,
    pooled,
    spread_of,
    unpaired_estimate,
)

RNG = np.random.default_rng(7)
CURRENT = [float(value) for value in RNG.normal(0.04, 0.03, size=6)]
BASELINE = [float(value) for value in RNG.normal(0.0, 0.03, size=9)]


def test_unpaired_interval_is_that_of_students_two_sample_test() -> None:
    spread = pooled(CURRENT, BASELINE)
    assert spread is not None
    found = unpaired_estimate(CURRENT, BASELINE, spread)
    test = stats.ttest_ind(CURRENT, BASELINE, equal_var=True, alternative="greater")
    assert found.p_value() == pytest.approx(test.pvalue)
    assert found.df == 13
    assert found.launches == (6, 9)
    assert not found.paired
    for alpha in (0.001, 0.005, 0.05):
        low = test.confidence_interval(1 - alpha).low
        assert found.lower(alpha) == pytest.approx(low)
    less = stats.ttest_ind(CURRENT, BASELINE, equal_var=True, alternative="less")
    assert found.upper() == pytest.approx(less.confidence_interval(0.95).high)


def test_paired_interval_is_that_of_the_one_sample_test() -> None:
    differences = [c - b for c, b in zip(CURRENT, BASELINE[:6], strict=True)]
    spread = spread_of(differences, "the pairs")
    assert spread is not None
    found = paired_estimate(differences, spread)
    test = stats.ttest_rel(CURRENT, BASELINE[:6], alternative="greater")
    assert found.p_value() == pytest.approx(test.pvalue)
    assert found.lower(0.005) == pytest.approx(test.confidence_interval(0.995).low)
    less = stats.ttest_rel(CURRENT, BASELINE[:6], alternative="less")
    assert found.upper(0.9) == pytest.approx(less.confidence_interval(0.9).high)
    assert found.launches == (6, 6)
    assert found.paired


def test_a_known_spread_gives_the_normal_interval() -> None:
    found = unpaired_estimate([0.1], [0.0] * 4, Spread(0.02, math.inf, "known"))
    se = 0.02 * math.sqrt(1 + 1 / 4)
    assert found.se == pytest.approx(se)
    assert found.lower(0.005) == pytest.approx(0.1 - stats.norm.ppf(0.995) * se)
    assert found.upper() == pytest.approx(0.1 + stats.norm.ppf(0.95) * se)


def test_pooled_spread_is_about_each_groups_own_mean() -> None:
    spread = pooled([1.0, 1.2], [5.0, 5.1, 5.3])
    assert spread is not None
    squares = statistics.variance([1.0, 1.2]) + 2 * statistics.variance([5.0, 5.1, 5.3])
    assert spread.sd == pytest.approx(math.sqrt(squares / 3))
    assert spread.df == 3


def test_the_model_is_used_while_the_runs_scatter_less() -> None:
    model = Spread(0.02, 30, "model")
    assert larger(Spread(0.01, 4, "own"), model, 0.001) == model
    assert larger(None, model, 0.001) == model


def test_runs_that_scatter_more_widen_the_interval_and_keep_the_models_freedom() -> None:
    model = Spread(0.02, 30, "model")
    assert larger(Spread(0.05, 4, "own"), model, 0.001) == Spread(0.05, 30, "own")
    assert larger(Spread(0.05, 99, "own"), model, 0.001) == Spread(0.05, 99, "own")


def test_no_spread_below_the_floor_is_believed() -> None:
    assert larger(Spread(0.0, 4, "own"), None, 0.002) == Spread(0.002, 4, "own")
    assert larger(None, Spread(1e-6, 30, "model"), 0.002) == Spread(0.002, 30, "model")
    assert larger(Spread(0.002, 4, "own"), None, 0.002) == Spread(0.002, 4, "own")


def test_the_detectable_change_is_found_in_four_of_five() -> None:
    spread = Spread(0.03, math.inf, "known")
    found = paired_estimate([0.0] * 5, spread)
    detectable = found.detectable(0.005)
    rng = np.random.default_rng(1)
    means = detectable + rng.normal(0.0, 0.03, size=(20_000, 5)).mean(axis=1)
    share = float(np.mean(means > found.visible(0.005)))
    assert share == pytest.approx(0.8, abs=0.02)
