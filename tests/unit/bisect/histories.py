"""Histories as states, and runs that are only looked up."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from canary.bisect.search import Search, Seen, State

History = Sequence[State]
"""The states of its commits with all that came before them; the last is the bad end."""


def line(count: int) -> History:
    """A history without merges."""
    return [(2 << number) - 1 for number in range(count)]


@st.composite
def graphs(draw: st.DrawFn, most: int = 40) -> History:
    """A random graph of commits: each has one or two earlier ones as parents, or the good end; the
    last has all."""
    count = draw(st.integers(1, most))
    states: list[State] = []
    for number in range(count - 1):
        parents = draw(st.lists(st.integers(-1, number - 1), min_size=1, max_size=2))
        held = 1 << number
        for parent in parents:
            held |= states[parent] if parent >= 0 else 0
        states.append(held)
    return [*states, (1 << count) - 1]


def between(history: History) -> Callable[[State], Sequence[State]]:
    """What a search can run: all but the bad end."""
    return lambda likely: [state for state in history if state != history[-1]]


def asked(search: Search, shows: Callable[[State], Seen], most: int = 2000) -> list[Seen]:
    """Run a search to its end, and return what it was told."""
    log: list[Seen] = []
    while (state := search.ask()) is not None:
        log.append(shows(state))
        search.tell(log[-1])
        assert len(log) < most, "the search does not end"
    return log


def exactly(culprit: int, broken: frozenset[State] = frozenset()) -> Callable[[State], Seen]:
    """What a run shows without noise."""

    def shows(state: State) -> Seen:
        if state in broken:
            return Seen(state, "skip")
        return Seen(state, "bad" if state >> culprit & 1 else "good")

    return shows
