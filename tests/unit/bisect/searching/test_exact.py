"""The exact search finds every culprit in every history, in few runs, and admits what it cannot."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canary.bisect.model import Answer, Seen
from canary.bisect.searching import exact_search
from canary.bisect.searching.states import bits
from tests.unit.bisect.searching.histories import (
    History,
    asked,
    exactly,
    flat,
    graphs,
    line,
    priors,
)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_culprit_of_every_history_is_found(data: st.DataObject) -> None:
    history = data.draw(graphs())
    culprit = data.draw(st.integers(0, len(history.prior) - 1))
    search = exact_search(history)
    asked(search, exactly(culprit))
    answer = search.answer()
    assert answer.decided
    assert answer.probability == 1.0
    same = [i for i in bits(history.bad) if held_with(history, i) == held_with(history, culprit)]
    assert sorted(answer.suspects) == same, "more than those that no state tells apart"
    assert sum(search.posterior()) == pytest.approx(1.0)


def held_with(history: History, suspect: int) -> list[bool]:
    return [bool(state >> suspect & 1) for state in history.commits]


@pytest.mark.parametrize("count", [1, 2, 5, 64])
def test_a_line_of_commits_takes_log2_of_them_and_both_ends(count: int) -> None:
    for culprit in range(count):
        search = exact_search(line(count))
        log = asked(search, exactly(culprit))
        assert len(log) <= math.ceil(math.log2(count)) + 2
        assert [seen.state for seen in log[:2]] == [0, (1 << count) - 1]
        assert search.answer() == Answer((culprit,), 1.0, True)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_wrong_prior_costs_few_runs(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 200))
    prior = data.draw(priors(count))
    for culprit in data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=5)):
        log = asked(exact_search(line(count, prior)), exactly(culprit))
        assert len(log) <= math.ceil(math.log2(count)) + 4


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_answer_holds_the_culprit_if_skips_hide_it(data: st.DataObject) -> None:
    history = data.draw(graphs())
    culprit = data.draw(st.integers(0, len(history.prior) - 1))
    broken = frozenset(data.draw(st.sets(st.sampled_from(history.commits)))) - {history.bad}
    search = exact_search(history)
    asked(search, exactly(culprit, broken))
    answer = search.answer()
    assert answer.decided
    assert culprit in answer.suspects
    able = [state for state in history.commits if state not in broken]
    for state in able:
        held = {bool(state >> suspect & 1) for suspect in answer.suspects}
        assert len(held) == 1, "a state that can run divides the suspects of the answer"
    assert answer.reason or len(answer.suspects) == 1


def test_skipped_commits_in_a_row_are_left_quickly() -> None:
    broken = frozenset((2 << number) - 1 for number in range(28, 36))
    for culprit in (3, 20, 40, 60):
        log = asked(exact_search(line(64)), exactly(culprit, broken))
        assert sum(seen.outcome == "skip" for seen in log) <= 2
        assert len(log) <= 12
    search = exact_search(line(64))
    asked(search, exactly(30, broken))
    assert set(search.answer().suspects) == set(range(28, 37))
    assert search.answer().reason == "The 8 that could tell do not run."


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_told_the_same_again_it_asks_the_same(data: st.DataObject) -> None:
    history = data.draw(graphs())
    culprit = data.draw(st.integers(0, len(history.prior) - 1))
    broken = frozenset(data.draw(st.sets(st.sampled_from(history.commits)))) - {history.bad}
    log = asked(exact_search(history), exactly(culprit, broken))
    cut = data.draw(st.integers(0, len(log)))
    again = exact_search(history)
    for seen in log[:cut]:
        again.tell(seen)
    assert asked(again, exactly(culprit, broken)) == log[cut:]


@pytest.mark.parametrize(
    ("state", "outcome", "reason"),
    [
        (0, "bad", "The good end shows it too."),
        (0, "skip", "The good end cannot run."),
        (255, "good", "The bad end does not show it."),
        (255, "skip", "The bad end cannot run."),
    ],
)
def test_ends_that_do_not_fit_end_the_search(state: int, outcome: str, reason: str) -> None:
    search = exact_search(line(8))
    search.tell(Seen(255 - state, "good" if state else "bad"))
    search.tell(Seen(state, outcome))  # type: ignore[arg-type]
    assert search.ask() is None
    assert search.answer() == Answer((), 0.0, False, reason)
    assert search.runs_left() == 0.0
    assert sum(search.posterior()) == pytest.approx(1.0)


@pytest.mark.parametrize("log", [[(15, "good"), (3, "bad")], [(15, "good"), (15, "bad")]])
def test_outcomes_that_contradict_each_other_decide_nothing(log: list[tuple[int, str]]) -> None:
    search = exact_search(line(8))
    for state, outcome in [(0, "good"), (255, "bad"), *log]:
        search.tell(Seen(state, outcome))  # type: ignore[arg-type]
    assert search.ask() is None
    assert not search.answer().decided
    assert search.answer().reason.startswith("The outcome is not repeatable: ")


def test_nothing_between_the_ends_is_said() -> None:
    search = exact_search(History((), ()))
    assert search.ask() is None
    assert "nothing changed between them" in search.answer().reason


def test_packages_that_only_change_together_are_named_together() -> None:
    search = exact_search(History(flat(3), [0b011, 0b111]))
    asked(search, exactly(0))
    assert search.answer() == Answer((0, 1), 1.0, True, "Nothing that can run lies between them.")
