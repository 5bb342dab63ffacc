"""What became of a change: it is confirmed, returned, or was accepted."""

from __future__ import annotations

import pytest

from tests.unit.trends.histories import noise, series, stepped, times


@pytest.mark.parametrize(("after", "found"), [(1, 0), (2, 0), (3, 1), (4, 1)])
def test_a_change_needs_three_runs(after: int, found: int) -> None:
    changes = series(times(stepped(noise(60 + after, 0), 60, 15))).changes
    assert [(one.place, one.standing) for one in changes] == [(60, "confirmed")] * found
    assert all(one.worse and one.runs_after == after for one in changes)


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
