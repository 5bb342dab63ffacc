"""Student's t and Snedecor's F against scipy."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from canary.compare.timing.student import incomplete_beta, t_quantile, t_upper_tail

FREEDOMS = (1, 3, 7.5, 30, 100, 1e8)
LEVELS = (1e-6, 1e-4, 0.001, 0.005, 0.05, 0.2, 0.5, 0.8, 0.95, 0.995, 0.99625, 0.999, 0.9999)
POINTS = (-40.0, -5.0, -1.0, -1e-3, 0.0, 1e-6, 0.3, 1.0, 2.5, 6.0, 40.0)


@pytest.mark.parametrize("df", FREEDOMS)
def test_quantiles_of_t(df: float) -> None:
    for level in LEVELS:
        expected = stats.t.ppf(level, df)
        assert t_quantile(level, df) == pytest.approx(expected, rel=1e-7, abs=1e-9), level


@pytest.mark.parametrize("df", FREEDOMS)
def test_tails_of_t(df: float) -> None:
    for t in POINTS:
        expected = stats.t.sf(t, df)
        assert t_upper_tail(t, df) == pytest.approx(expected, rel=1e-5, abs=1e-300), t


def test_infinite_degrees_of_freedom_are_the_normal_distribution() -> None:
    for level in LEVELS:
        assert t_quantile(level, math.inf) == pytest.approx(stats.norm.ppf(level), abs=1e-9)
    for t in POINTS[1:-1]:
        assert t_upper_tail(t, math.inf) == pytest.approx(stats.norm.sf(t), rel=1e-9)


@pytest.mark.parametrize("a", [0.5, 1.0, 40.0, 5e4])
@pytest.mark.parametrize("b", [0.5, 1.0, 3.0, 60.0])
def test_the_incomplete_beta_function(a: float, b: float) -> None:
    for x in (0.0, 1e-9, 0.01, 0.3, 0.5, 0.8, 0.999, 1.0):
        expected = stats.beta.cdf(x, a, b)
        assert incomplete_beta(a, b, x) == pytest.approx(expected, rel=1e-8, abs=1e-250), x
