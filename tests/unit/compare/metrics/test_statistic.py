"""What a gate sees of one curve: its window, its statistic, and lone spikes."""

from __future__ import annotations

import math
from typing import Any

import pytest

from canary.compare.metrics.statistic import bounds_of, lone_spikes, reading, window
from tests.unit.gating import curve, gate

VALUES = [5.0, 1.0, 4.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        ({"statistic": "mean"}, 3.0),
        ({"statistic": "median"}, 3.0),
        ({"statistic": "last"}, 3.0),
        ({"statistic": "max"}, 5.0),
        ({"statistic": "min"}, 1.0),
        ({"statistic": "count"}, 5.0),
        ({"statistic": "share_above", "above": 3.0}, 0.6),
        ({"statistic": "at", "step": 2}, 1.0),
        ({"statistic": "at", "step": -1}, 3.0),
        ({"statistic": "area"}, (3.0 + 2.5 + 3.0 + 2.5) / 4),
        ({"statistic": "mean", "last": 2}, 2.5),
        ({"statistic": "mean", "from_step": 2, "to_step": 3}, 2.5),
        ({"statistic": "mean", "from_step": -2}, 2.5),
        ({"statistic": "mean", "to_step": -4}, 3.0),
        ({"statistic": "max", "of_step": 3}, 1.25),
    ],
)
def test_a_statistic_is_of_the_values_in_its_window(keys: dict[str, Any], value: float) -> None:
    found = reading(curve(VALUES), gate(limit=1.0, **keys))
    assert found.problem == ""
    assert found.value == pytest.approx(value)


def test_steps_count_by_their_numbers_not_by_their_places() -> None:
    sparse = curve(VALUES, first=10, every=10)
    assert window(sparse, gate(limit=1.0, from_step=20, to_step=40)) == (
        (20, 1.0),
        (30, 4.0),
        (40, 2.0),
    )
    assert window(sparse, gate(limit=1.0, from_step=-10)) == ((50, 3.0),)


def test_the_area_does_not_depend_on_how_often_a_line_is_logged() -> None:
    every, rarely = curve([float(step) for step in range(11)], first=0), curve([0.0, 10.0], 0, 10)
    wanted = gate(limit=1.0, statistic="area")
    assert reading(every, wanted).value == reading(rarely, wanted).value == 5.0


@pytest.mark.parametrize("broken", [math.nan, math.inf])
@pytest.mark.parametrize(
    "statistic", ["mean", "median", "last", "max", "min", "area", "count", "share_above"]
)
def test_no_statistic_hides_a_value_that_is_not_finite(statistic: str, broken: float) -> None:
    keys: dict[str, Any] = {"above": 1.0} if statistic == "share_above" else {}
    for place in range(3):
        values = [1.0, 1.0, 1.0]
        values[place] = broken
        found = reading(curve(values), gate(limit=2.0, statistic=statistic, **keys))
        assert found.value is None
        assert found.broken == str(broken)


def test_a_broken_value_outside_of_the_window_does_not_count() -> None:
    values = [math.nan, 1.0, 1.0]
    assert reading(curve(values), gate(limit=2.0, from_step=2)).value == 1.0
    assert reading(curve(values), gate(limit=2.0, statistic="at", step=3)).value == 1.0


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"statistic": "at", "step": 9}, "no value at step 9"),
        ({"from_step": 9}, "no value in the steps"),
        ({"of_step": 9}, "no value at step 9"),
    ],
)
def test_a_window_without_values_is_told(keys: dict[str, Any], problem: str) -> None:
    found = reading(curve(VALUES), gate(limit=1.0, **keys))
    assert found.value is None
    assert problem in found.problem


def test_a_start_that_is_not_above_zero_gives_no_share_of_it() -> None:
    assert reading(curve([0.0, 1.0]), gate(limit=1.0, of_step=1)).value is None
    assert reading(curve([-1.0, 1.0]), gate(limit=1.0, of_step=1)).value is None


@pytest.mark.parametrize(
    ("statistic", "values", "alone"),
    [
        ("max", [1.0, 9.0, 1.0, 1.0], [2]),
        ("max", [1.0, 9.0, 9.0, 1.0], []),
        ("max", [9.0], []),  # nothing else could confirm it
        ("last", [1.0, 1.0, 1.0, 9.0], [4]),
        ("last", [1.0, 1.0, 9.0, 9.0], []),
        ("at", [1.0, 9.0, 1.0, 1.0], [2]),
        ("mean", [1.0, 2.0, 1.0, 2.0, 1.0, 99.0], [6]),
        ("mean", [1.0, 2.0, 1.0, 99.0, 1.0, 99.0], []),
        ("mean", [2.1, 2.2, 2.3, 2.4, 99.0, 2.5], []),  # beyond the limit without it too
        ("mean", [1.0, 9.0, 1.0], []),  # too few to call one of them a spike
    ],
)
def test_a_spike_is_alone_if_no_other_value_says_the_same(
    statistic: str, values: list[float], alone: list[int]
) -> None:
    step: dict[str, Any] = {"step": 2} if statistic == "at" else {}
    wanted = gate(limit=2.0, statistic=statistic, **step)
    points = reading(curve(values), wanted).points
    assert lone_spikes(points, wanted, bounds_of(wanted, 2.0)) == alone


def test_without_allowed_spikes_each_one_decides() -> None:
    wanted = gate(limit=2.0, statistic="max", spikes=0)
    points = reading(curve([1.0, 9.0, 1.0]), wanted).points
    assert lone_spikes(points, wanted, bounds_of(wanted, 2.0)) == []
