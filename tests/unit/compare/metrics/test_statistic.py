"""What a gate sees of one curve: its window and its statistic."""

from __future__ import annotations

import math
from typing import Any

import pytest

from canary.compare.metrics.statistic import reading, window
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
        ({"statistic": "at", "step": 2}, 1.0),
        ({"statistic": "at", "step": -1}, 3.0),
        ({"statistic": "mean", "last": 2}, 2.5),
        ({"statistic": "mean", "from_step": 2, "to_step": 3}, 2.5),
        ({"statistic": "mean", "from_step": -2}, 2.5),
        ({"statistic": "mean", "to_step": -4}, 3.0),
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


@pytest.mark.parametrize("broken", [math.nan, math.inf])
@pytest.mark.parametrize("statistic", ["mean", "median", "last", "max", "min"])
def test_no_statistic_hides_a_value_that_is_not_finite(statistic: str, broken: float) -> None:
    for place in range(3):
        values = [1.0, 1.0, 1.0]
        values[place] = broken
        found = reading(curve(values), gate(limit=2.0, statistic=statistic))
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
    ],
)
def test_a_window_without_values_is_told(keys: dict[str, Any], problem: str) -> None:
    found = reading(curve(VALUES), gate(limit=1.0, **keys))
    assert found.value is None
    assert problem in found.problem
