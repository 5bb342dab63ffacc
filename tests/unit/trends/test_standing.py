"""What became of a change: it waits, is confirmed, returned, or was accepted."""

from __future__ import annotations

import pytest

from tests.unit.trends.histories import noise, series, stepped, times


@pytest.mark.parametrize(
    ("after", "standing"), [(1, "waiting"), (2, "waiting"), (3, "confirmed"), (4, "confirmed")]
)
def test_a_change_needs_three_runs(after: int, standing: str) -> None:
    (change,) = series(times(stepped(noise(60 + after, 0), 60, 15))).changes
    assert (change.place, change.standing, change.runs_after) == (60, standing, after)
    assert change.worse


def test_a_spike_waits_and_is_then_forgotten() -> None:
    values = noise(60, 0)
    values[40] += 0.2
    assert [one.standing for one in series(times(values[:41])).changes] == ["waiting"]
    assert all(not series(times(values[:end])).changes for end in range(42, 61))


def test_a_change_that_waits_is_of_no_level() -> None:
    found = series(times(stepped(noise(62, 0), 60, 15)))
    assert found.levels[-1].last == 59


def test_a_level_that_returns_ends_the_change() -> None:
    values = stepped(stepped(noise(90, 0), 30, 10), 60, 100 * (1 / 1.1 - 1))
    assert series(times(values[:62])).changes[0].standing == "confirmed"
    up, down = series(times(values)).changes
    assert (up.standing, down.standing) == ("returned", "confirmed")
    assert (up.worse, down.worse) == (True, False)


def test_a_level_that_returns_halfway_does_not() -> None:
    values = stepped(stepped(noise(90, 0), 30, 20), 60, -8)
    assert [one.standing for one in series(times(values)).changes] == ["confirmed", "confirmed"]


def test_an_accepted_change_is_told_as_accepted() -> None:
    values = times(stepped(noise(60, 0), 30, 10))
    at_once = series(values, accepted=[30])
    assert [one.standing for one in at_once.changes] == ["accepted"]
    after_red = series(values, accepted=[33], red=[30, 31, 32])
    assert [one.standing for one in after_red.changes] == ["accepted"]
    later = series(values, accepted=[40])
    assert [one.standing for one in later.changes] == ["confirmed"]
    waiting = series(values[:31], accepted=[30])
    assert [one.standing for one in waiting.changes] == ["accepted"]


def test_red_runs_count() -> None:
    """A regression that was pushed and stays is what people search for."""
    values = times(stepped(noise(40, 0), 30, 10))
    (change,) = series(values, red=range(30, 40)).changes
    assert (change.place, change.standing) == (30, "confirmed")


def test_neither_direction_is_worse_without_one() -> None:
    values = times(stepped(noise(60, 0), 30, 10))
    assert not series(values, lower_is_better=None).changes[0].worse
    assert not series(values, lower_is_better=False).changes[0].worse
    assert series(times(stepped(noise(60, 0), 30, -10)), lower_is_better=False).changes[0].worse
