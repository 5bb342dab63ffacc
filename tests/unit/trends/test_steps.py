"""Change points: found where they are, and not where spikes or lasting noise look like them."""

from __future__ import annotations

import numpy as np
import pytest

from canary.compare.timing.estimate import Spread
from canary.trends.steps import find_steps, measure, of_mean
from tests.unit.trends.histories import BUDGET, FLOOR, noise, series, stepped, times


def places(values: np.ndarray, budget: float = BUDGET) -> list[int]:
    return find_steps(values, FLOOR, budget).cuts


@pytest.mark.parametrize("percent", [5.0, -10.0])
def test_a_step_is_found_at_its_place(percent: float) -> None:
    found = [places(stepped(noise(120, seed, spikes=0.03), 100, percent)) for seed in range(40)]
    right = sum(any(abs(place - 100) <= 1 for place in one) for one in found)
    assert right >= 39
    assert sum(map(len, found)) <= right + 1


def test_five_runs_show_ten_percent() -> None:
    found = [places(stepped(noise(105, seed, lasting=0.3), 100, 10)) for seed in range(40)]
    assert sum(one == [100] for one in found) >= 39


@pytest.mark.parametrize(("lasting", "spikes"), [(0.0, 0.05), (0.6, 0.05)])
def test_healthy_histories_have_no_change_points(lasting: float, spikes: float) -> None:
    found = [places(noise(200, seed, lasting=lasting, spikes=spikes)) for seed in range(40)]
    assert sum(map(bool, found)) <= 1, found


def test_a_machine_that_wanders_slowly_has_no_change_points() -> None:
    found = [
        places(0.8 * noise(200, seed) + 0.6 * noise(200, seed + 500, lasting=0.95))
        for seed in range(60)
    ]
    assert sum(map(bool, found)) <= 2, found


@pytest.mark.parametrize("length", [1, 2])
def test_a_spike_is_no_level(length: int) -> None:
    for seed in range(20):
        values = noise(60, seed)
        values[30 : 30 + length] += 1.0
        assert places(values) == []


def test_three_runs_on_each_side_are_the_least() -> None:
    assert series([1.0] * 3 + [1.5] * 3).changes[0].place == 3
    assert series([1.0] * 3 + [1.5] * 2).changes == ()
    assert "6 are needed" in series([1.0] * 3 + [1.5] * 2).notes[0]


def test_spikes_side_by_side_are_no_level() -> None:
    """One run in five is a spike, so three of them meet by chance."""
    values = noise(100, 3)
    values[::5] += 0.2
    values[[50, 51, 52]] = 0.2
    assert places(values) == []


def test_a_number_that_repeats_exactly_changes_exactly() -> None:
    found = series([0.97] * 10 + [0.9700001] * 3)
    (change,) = found.changes
    assert (change.place, change.standing, change.within) == (10, "confirmed", (10, 10))
    assert change.interval[0] > 0
    assert series([0.97] * 40).changes == ()


def test_two_values_that_alternate_are_noise() -> None:
    assert series([0.97, 0.98] * 20).changes == ()
    rng = np.random.default_rng(0)
    assert series([0.97 + 0.01 * one for one in rng.integers(0, 2, 60)]).changes == ()


def test_the_interval_covers_the_change_and_the_place() -> None:
    inside = near = 0
    for seed in range(60):
        (step, *_) = find_steps(stepped(noise(120, seed, lasting=0.3), 60, 4), FLOOR, BUDGET).found
        low, high = step.interval
        inside += low < np.log1p(0.04) < high
        near += step.within[0] <= 60 <= step.within[1]
    assert inside == 60
    assert near >= 56


def test_noise_that_lasts_widens_the_interval() -> None:
    short, long = (measure(noise(300, 2, lasting=one), (), FLOOR) for one in (0.0, 0.6))
    assert long.correlation > 0.5
    assert long.error(50, 10) > 1.5 * short.error(50, 10)
    mean = [float(np.mean(noise(10, seed, sd=1.0, lasting=0.6))) for seed in range(4000)]
    assert np.var(mean) == pytest.approx(of_mean(10, 0.6), rel=0.15)


def test_a_noise_model_only_widens() -> None:
    values = noise(60, 0)
    plain = measure(values, (), FLOOR)
    calm = measure(values, (), FLOOR, Spread(0.001, 30, "model"))
    loud = measure(values, (), FLOOR, Spread(0.05, 30, "model"))
    assert calm == plain
    assert loud.spread.sd == 0.05
    assert loud.spread.df == plain.spread.df
    assert find_steps(stepped(values, 50, 5), FLOOR, BUDGET).cuts == [50]
    assert find_steps(stepped(values, 50, 5), FLOOR, BUDGET, Spread(0.05, 30, "")).cuts == []


def test_a_smaller_budget_finds_less() -> None:
    values = [stepped(noise(105, seed), 100, 3) for seed in range(40)]
    many, few = (sum(map(bool, (places(one, budget) for one in values))) for budget in (0.1, 1e-6))
    assert few < many


def test_several_levels_are_all_found() -> None:
    values = stepped(stepped(stepped(noise(200, 2), 50, 8), 100, -7), 150, 9)
    found = series(times(values))
    assert [change.place for change in found.changes] == [50, 100, 150]
    assert [change.worse for change in found.changes] == [True, False, True]
    assert [(level.first, level.last) for level in found.levels] == [
        (0, 49),
        (50, 99),
        (100, 149),
        (150, 199),
    ]
    low, high = found.levels[0].interval
    assert low < 100 < high
