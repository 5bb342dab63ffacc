"""A slow drift is found, and told apart from a step."""

from __future__ import annotations

import pytest

from tests.unit.trends.histories import noise, ramped, series, stepped, times


@pytest.mark.parametrize(("first", "last"), [(100, 199), (60, 120)])
def test_a_drift_is_no_step(first: int, last: int) -> None:
    found = [
        series(times(ramped(noise(200, seed, lasting=0.3), first, last, 10))) for seed in range(12)
    ]
    drifts = [one.drift for one in found if one.drift is not None]
    assert len(drifts) >= 11
    assert sum(bool(one.changes) for one in found) <= 1
    assert all(drift.worse and 5 < drift.percent < 15 for drift in drifts)
    assert sum(drift.interval[0] < 10 < drift.interval[1] for drift in drifts) >= 11
    middle = sum((drift.first + drift.last) / 2 for drift in drifts) / len(drifts)
    assert middle == pytest.approx((first + last) / 2, abs=12)


def test_a_step_is_no_drift() -> None:
    for seed, percent in zip(range(24), [3.0, 10.0, 50.0] * 8, strict=True):
        found = series(times(stepped(noise(120, seed, lasting=0.3, spikes=0.03), 100, percent)))
        assert found.drift is None


def test_spikes_before_a_step_are_no_drift() -> None:
    values = stepped(noise(110, 4), 100, 10)
    values[97] += 0.09
    found = series(times(values))
    assert found.drift is None
    assert [change.place for change in found.changes] == [100]


@pytest.mark.parametrize("lasting", [0.0, 0.6])
def test_healthy_histories_do_not_drift(lasting: float) -> None:
    drifts = [
        series(times(noise(200, seed, lasting=lasting, spikes=0.03))).drift for seed in range(20)
    ]
    assert sum(one is not None for one in drifts) <= 1


def test_a_drift_and_a_step_are_both_told() -> None:
    values = stepped(ramped(noise(200, 5), 20, 110, 10), 160, 12)
    found = series(times(values))
    assert found.drift is not None
    assert found.drift.last < 160
    assert [change.place for change in found.changes] == [160]
    covered = [place for level in found.levels for place in range(level.first, level.last + 1)]
    assert found.drift.first + 10 not in covered


def test_a_drift_for_the_better_is_not_worse() -> None:
    found = series(times(ramped(noise(200, 1), 0, 199, -10)))
    assert found.drift is not None
    assert not found.drift.worse


def test_the_trend_of_a_level_is_about_zero_and_of_a_drift_is_not() -> None:
    level = series(times(noise(100, 1))).trend
    assert level is not None
    assert level[1] < 0 < level[2]
    drift = series(times(ramped(noise(100, 1), 0, 99, 20))).trend
    assert drift is not None
    assert 1 < drift[1] < drift[0] < drift[2] < 3
    assert series([1.0] * 4 + [2.0] * 3).trend is None
