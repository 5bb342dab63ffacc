"""The noisy search finds a change in noise, and says so where there is none to find."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.simulated_launches import PLACES, Machine
from canary.bisect.model import Answer, Seen, State
from canary.bisect.searching import NoisySearch, noisy_search
from canary.compare.timing.estimate import Spread
from tests.unit.bisect.searching.histories import History, asked, graphs, line

LEAST = math.log(1.03)


def search_in(
    space: History, *, sd: float | None = None, budget: int | None = 200, effect: float = LEAST
) -> NoisySearch:
    spread = Spread(sd, 9, "measured") if sd else None
    return noisy_search(space, spread=spread, effect=effect, budget=budget)


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
    culprit = data.draw(st.integers(0, len(history.prior) - 1))
    broken = frozenset(data.draw(st.sets(st.sampled_from(history.commits)))) - {history.bad}
    search = search_in(history)
    seed = data.draw(st.integers(0, 1000))
    asked(search, launches(culprit, seed=seed, noise=0.002, change=0.5, broken=broken))
    answer = search.answer()
    assert answer.decided
    assert culprit in answer.suspects
    for state in history.commits:
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


@settings(max_examples=6, deadline=None)
@given(st.data())
def test_told_the_same_again_it_asks_the_same(data: st.DataObject) -> None:
    history = data.draw(graphs(most=20))
    culprit = data.draw(st.integers(0, len(history.prior) - 1))
    shows = launches(culprit, seed=data.draw(st.integers(0, 1000)), noise=0.05, change=0.1)
    log = asked(search_in(history, budget=20), shows)
    cut = data.draw(st.integers(0, len(log)))
    again = search_in(history, budget=20)
    for seen in log[:cut]:
        again.tell(seen)
    for seen in log[cut:]:
        assert again.ask() == seen.state
        again.tell(seen)
    assert again.ask() is None


@pytest.mark.parametrize("change", [0.0, -0.2])
def test_ends_that_do_not_differ_end_the_search(change: float) -> None:
    undecided = 0
    for seed in range(4):
        search = search_in(line(64))
        log = asked(search, launches(30, seed=seed, noise=0.02, change=change))
        answer = search.answer()
        assert not answer.decided
        if answer.reason.startswith("The ends do not differ: "):
            undecided += 1
            assert answer.suspects == ()
            assert len(log) < 60
    assert undecided >= 3


def test_one_spike_is_not_a_change() -> None:
    draw = random.Random(3)
    spiked: list[State] = []

    def shows(state: State) -> Seen:
        value = draw.gauss(0.0, 0.01) + (0.15 if state >> 40 & 1 else 0.0)
        if state not in (0, 2**64 - 1) and not state >> 40 & 1 and not spiked:
            spiked.append(state)
            value += 0.3
        return Seen(state, value=value)

    search = search_in(line(64))
    asked(search, shows)
    assert spiked
    assert search.answer().suspects == (40,)
    assert search.answer().decided


def test_the_range_that_skipped_states_hide_is_the_answer() -> None:
    broken = frozenset((2 << number) - 1 for number in range(28, 32))
    search = search_in(line(64))
    log = asked(search, launches(30, noise=0.01, broken=broken))
    answer = search.answer()
    assert set(answer.suspects) == {28, 29, 30, 31, 32}
    assert answer.decided
    assert answer.reason == "The 4 that could tell do not run."
    assert sum(seen.outcome == "skip" for seen in log) == 4


def test_the_budget_ends_the_search_undecided() -> None:
    search = search_in(line(64), budget=12)
    assert search.runs_left() <= 12
    log = asked(search, launches(30, noise=0.1, change=0.05))
    assert len(log) == 12
    assert not search.answer().decided
    assert search.answer().reason == "The budget of 12 launches is spent."
    assert search.answer().probability < 0.99


def test_a_stop_ends_the_search_with_its_reason() -> None:
    search = search_in(line(64))
    search.tell(Seen(0, value=1.0))
    search.stop("20 minutes are over.")
    assert search.ask() is None
    assert search.answer().reason == "20 minutes are over."
    assert not search.answer().decided


@pytest.mark.parametrize(("end", "name"), [(0, "good"), (255, "bad")])
def test_an_end_that_cannot_run_ends_the_search(end: State, name: str) -> None:
    search = search_in(line(8))
    search.tell(Seen(end, "skip"))
    assert search.ask() is None
    assert search.answer() == Answer((), 0.0, False, f"The {name} end cannot run.")


@pytest.mark.parametrize(
    "seen", [Seen(0), Seen(0, "good"), Seen(0, value=math.nan), Seen(0, value=1e300)]
)
def test_a_launch_without_a_value_is_refused(seen: Seen) -> None:
    with pytest.raises(ValueError, match="needs the logarithm of a metric"):
        search_in(line(8)).tell(seen)


def test_a_thousand_commits_are_chosen_from_in_less_than_a_second() -> None:
    search, shows, slowest = search_in(line(1000)), launches(700, noise=0.03), 0.0
    while True:
        start = time.process_time()
        state = search.ask()
        slowest = max(slowest, time.process_time() - start)
        if state is None:
            break
        search.tell(shows(state))
    assert search.answer().suspects == (700,)
    assert slowest < 1.0
