"""Long series keep the smallest and largest value of every bucket."""

from __future__ import annotations

import itertools
import math
import random

from canary.report.charts.chart import MOST, kept_steps


def test_a_short_series_is_kept_whole() -> None:
    series = {step: float(step) for step in range(5, 5 + MOST)}
    assert kept_steps([series]) == list(series)


def test_peaks_and_ends_of_a_long_series_stay() -> None:
    draw = random.Random(0)
    series = {step: draw.gauss(0, 1) for step in range(1, 10_001)}
    series |= {777: 50.0, 778: -50.0, 9_999: 40.0}
    kept = kept_steps([series])
    assert len(kept) <= MOST
    assert {1, 777, 778, 9_999, 10_000} <= set(kept)
    assert kept == sorted(kept)


def test_no_bucket_is_empty_and_each_series_keeps_its_own_range() -> None:
    ups = {step: float(step % 100) for step in range(3_000)}
    downs = {step: -float(step % 70) for step in range(3_000)}
    kept = kept_steps([ups, downs])
    assert max(b - a for a, b in itertools.pairwise(kept)) <= 2 * 3_000 // (MOST // 2 - 1) + 2
    assert max(ups[step] for step in kept) == 99.0
    assert min(downs[step] for step in kept) == -69.0


def test_a_step_that_is_not_finite_stays() -> None:
    series = dict.fromkeys(range(5000), 1.0) | {1_234: math.nan, 4_321: math.inf}
    assert {1_234, 4_321} <= set(kept_steps([series]))


def test_many_steps_that_are_not_finite_do_not_fill_the_page() -> None:
    series = dict.fromkeys(range(100000), math.nan) | {0: 1.0}
    assert len(kept_steps([series])) <= 2 * MOST
