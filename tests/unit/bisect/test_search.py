"""The search without noise finds every culprit in every history, in few runs, and admits what it
cannot."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canary.bisect.search import Answer, Halving, Seen, bits
from tests.unit.bisect.histories import History, asked, between, exactly, graphs, line


def halving(history: History) -> Halving:
    return Halving(len(history), between(history))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_culprit_of_every_history_is_found(data: st.DataObject) -> None:
    history = data.draw(graphs())
    culprit = data.draw(st.integers(0, len(history) - 1))
    search = halving(history)
    log = asked(search, exactly(culprit))
    assert search.answer() == Answer((culprit,), 1.0, True)
    assert sum(search.posterior()) == pytest.approx(1.0)
    bad = [seen.state for seen in log if seen.outcome == "bad"]
    assert all(not new & ~old for old, new in pairwise(bad)), "as git demands"


@pytest.mark.parametrize("count", [1, 2, 5, 64])
def test_a_line_of_commits_takes_log2_of_them(count: int) -> None:
    for culprit in range(count):
        log = asked(halving(line(count)), exactly(culprit))
        assert len(log) <= math.ceil(math.log2(count))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_answer_holds_the_culprit_if_skips_hide_it(data: st.DataObject) -> None:
    history = data.draw(graphs())
    culprit = data.draw(st.integers(0, len(history) - 1))
    broken = frozenset(data.draw(st.sets(st.sampled_from(history)))) - {history[-1]}
    search = halving(history)
    asked(search, exactly(culprit, broken))
    answer = search.answer()
    assert answer.decided
    assert culprit in answer.suspects
    assert answer.reason or len(answer.suspects) == 1
    (newest,) = [one for one in answer.suspects if {*answer.suspects} <= {*bits(history[one])}]
    assert all(history[one] in broken for one in answer.suspects if one != newest), "as git says"


def test_skipped_commits_in_a_row_are_left_quickly() -> None:
    broken = frozenset((2 << number) - 1 for number in range(28, 36))
    for culprit in (3, 20, 40, 60):
        log = asked(halving(line(64)), exactly(culprit, broken))
        assert sum(seen.outcome == "skip" for seen in log) <= 2
        assert len(log) <= 10
    search = halving(line(64))
    asked(search, exactly(30, broken))
    assert search.answer().suspects == tuple(range(28, 37))
    assert search.answer().reason == "8 between them did not run"


def test_outcomes_that_contradict_each_other_decide_nothing() -> None:
    search = halving(line(8))
    for state, outcome in ((3, "bad"), (15, "good")):
        search.tell(Seen(state, outcome))  # type: ignore[arg-type]
    assert search.ask() is None
    assert search.answer().reason.startswith("the outcome is not repeatable")


def test_suspects_that_only_change_together_are_named_together() -> None:
    search = Halving(3, lambda likely: [0b011])
    asked(search, exactly(0))
    assert search.answer() == Answer((0, 1), 1.0, True, "nothing between them can run")
