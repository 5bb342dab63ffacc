"""What became of a change: it waits, is confirmed, returned, or was accepted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from canary.compare.stats import compare_to_baseline
from canary.trends.model import HistoryTrends
from canary.trends.standing import confirmed_by, with_pairs
from tests.unit.comparing import pairs
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


@pytest.mark.parametrize(("effect", "standing"), [(0.15, "confirmed"), (0.0, "waiting")])
def test_pairs_confirm_a_change_that_waits(effect: float, standing: str) -> None:
    found = replace(series(times(stepped(noise(61, 0), 60, 15))), metric="step_time_median")
    (change,) = found.changes
    current, baseline = pairs(5, effect)
    compared = compare_to_baseline(current, baseline, paired=True)
    after = confirmed_by(found, change, compared)
    assert after.standing == standing
    assert after.pairs == (5 if effect else 0)
    opposite = confirmed_by(found, replace(change, percent=-15.0), compared)
    assert opposite.pairs == 0


@pytest.mark.parametrize(
    ("commits", "standing", "notes"),
    [
        ((59, 60), "confirmed", 0),
        ((40, 60), "confirmed", 0),
        ((58, 59), "waiting", 1),
        ((60, 59), "waiting", 1),
    ],
)
def test_pairs_confirm_only_what_lies_between_their_commits(
    commits: tuple[int, int], standing: str, notes: int
) -> None:
    found = replace(series(times(stepped(noise(61, 0), 60, 15))), metric="step_time_median")
    current, baseline = pairs(5, 0.15)
    compared = compare_to_baseline(current, baseline, paired=True)
    base, head = (found.points[place].commit for place in commits)
    compared = replace(
        compared,
        baseline=replace(compared.baseline, sha=base),
        current=replace(compared.current, sha=head),
    )
    after = with_pairs(HistoryTrends("c", "m", (found,)), compared)
    assert [one.standing for one in after.series[0].changes] == [standing]
    assert len(after.notes) == notes
