"""One package or several together: the search for sets, with runs that are only looked up."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from canary.bisect.noisy import Noisy
from canary.bisect.search import Halving, Outcome, Seen, SetSearch, State


def searched(
    count: int, bad: Callable[[State], bool], fits: Callable[[State], bool] = lambda state: True
) -> tuple[SetSearch, list[State]]:
    """Search with runs that never vary; return the search and the states that ran."""
    search = SetSearch(Halving, count)
    ran = []
    while (state := search.ask()) is not None:
        ran.append(state)
        assert search.ask() == state
        outcome: Outcome = "skip" if not fits(state) else "bad" if bad(state) else "good"
        search.tell(Seen(state, outcome))
    assert len(set(ran)) == len(ran)
    return search, ran


def holds(*culprits: int) -> Callable[[State], bool]:
    return lambda state: all(state >> one & 1 for one in culprits)


@pytest.mark.parametrize("culprit", [0, 6, 11])
def test_one_package_is_found_and_tried_alone(culprit: int) -> None:
    search, ran = searched(12, holds(culprit))
    answer = search.answer()
    assert answer.suspects == (culprit,)
    assert answer.decided
    assert not search.answer().together
    assert not search.answer().others
    assert len(ran) <= 6
    assert {1 << culprit, (1 << 12) - 1 - (1 << culprit)} <= set(ran)


@pytest.mark.parametrize("pair", [(0, 1), (0, 8), (3, 5)])
def test_two_packages_that_only_together_show_it_are_the_answer(pair: tuple[int, int]) -> None:
    search, ran = searched(9, holds(*pair))
    assert search.answer().suspects == pair
    assert search.answer().decided
    assert search.answer().together
    assert not search.answer().others
    assert len(ran) <= 16


def test_either_of_two_is_the_answer_and_the_other_is_known_to_exist() -> None:
    search, _ = searched(8, lambda state: bool(state & 0b00100100))
    assert search.answer().suspects in [(2,), (5,)]
    assert search.answer().others


def test_packages_that_only_go_together_are_named_together() -> None:
    search, _ = searched(6, holds(1), lambda state: (state & 0b110) in (0, 0b110))
    assert search.answer().suspects == (1, 2)
    assert search.answer().together


def noisy(
    count: int, level: Callable[[State], float], sd: float, seed: int
) -> tuple[SetSearch, int]:
    """Search with values that scatter; return the search and the number of runs."""
    chance = random.Random(seed)
    search = SetSearch(partial(Noisy, least=0.05), count)

    def seen(state: State) -> Seen:
        return Seen(state, None, level(state) + chance.gauss(0.0, sd))

    for state in [0, (1 << count) - 1] * 3:
        search.tell(seen(state))
    runs = 0
    while (state_ := search.ask()) is not None and runs < 400:
        search.tell(seen(state_))
        runs += 1
    return search, runs


@pytest.mark.parametrize("seed", range(2))
def test_a_slower_package_is_found_among_noise(seed: int) -> None:
    search, runs = noisy(8, lambda state: 0.1 * (state >> 5 & 1), 0.02, seed)
    assert search.answer().suspects == (5,)
    assert search.answer().decided
    assert not search.answer().together
    assert runs < 60


@pytest.mark.parametrize("seed", range(2))
def test_two_packages_that_are_slow_only_together_are_never_one_wrong_package(seed: int) -> None:
    search, _ = noisy(6, lambda state: 0.2 * holds(1, 4)(state), 0.02, seed)
    answer: Sequence[int] = search.answer().suspects
    assert not search.answer().decided or (search.answer().together and sorted(answer) == [1, 4])
