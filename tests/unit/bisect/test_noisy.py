"""The noisy search finds a change in noise, and says so where there is none to find."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.simulated_launches import PLACES, Machine
from canary.bisect.noisy import MOST, Noisy
from canary.bisect.search import Seen, State
from tests.unit.bisect.histories import History, asked, between, graphs, line

LEAST = math.log(1.03)


def search_in(history: History) -> Noisy:
    return Noisy(len(history), between(history), LEAST)


def launches(
    culprit: int,
    *,
    seed: int = 1,
    noise: float = 0.02,
    change: float = 0.2,
    place: str = "steady",
    broken: frozenset[State] = frozenset(),
) -> Callable[[State], Seen]:
    """What launches on a simulated machine show."""
    machine = Machine(random.Random(seed), PLACES[place], noise, change, culprit)

    def shows(state: State) -> Seen:
        return Seen(state, "skip") if state in broken else Seen(state, value=machine.launch(state))

    return shows


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_a_clear_change_is_found_in_every_history(data: st.DataObject) -> None:
    history = data.draw(graphs(most=25))
    culprit = data.draw(st.integers(0, len(history) - 1))
    broken = frozenset(data.draw(st.sets(st.sampled_from(history)))) - {history[-1]}
    search = search_in(history)
    seed = data.draw(st.integers(0, 1000))
    asked(search, launches(culprit, seed=seed, noise=0.002, change=0.5, broken=broken))
    answer = search.answer()
    assert answer.decided
    assert culprit in answer.suspects
    for state in history:
        if state not in broken:
            held = {bool(state >> suspect & 1) for suspect in answer.suspects}
            assert len(held) == 1, "a state that can run divides the suspects of the answer"
    assert answer.reason or len(answer.suspects) == 1


@pytest.mark.parametrize("place", ["steady", "all of it"])
def test_a_tenth_slower_is_found_on_a_noisy_machine(place: str) -> None:
    right = wrong = 0
    for seed in range(6):
        search = search_in(line(64))
        asked(search, launches(10 * seed, seed=seed, noise=0.04, change=0.10, place=place))
        answer = search.answer()
        right += answer.decided and answer.suspects == (10 * seed,)
        wrong += answer.decided and answer.suspects != (10 * seed,)
    assert right >= 5
    assert wrong == 0


def test_a_search_without_a_culprit_ends_undecided() -> None:
    search = search_in(line(64))
    log = asked(search, launches(30, noise=0.02, change=0.0))
    assert not search.answer().decided
    assert len(log) == MOST


def test_the_range_that_skipped_states_hide_is_the_answer() -> None:
    broken = frozenset((2 << number) - 1 for number in range(28, 32))
    search = search_in(line(64))
    log = asked(search, launches(30, noise=0.01, broken=broken))
    answer = search.answer()
    assert set(answer.suspects) == {28, 29, 30, 31, 32}
    assert answer.decided
    assert answer.reason == "4 between them did not run"
    assert sum(seen.outcome == "skip" for seen in log) == 4
