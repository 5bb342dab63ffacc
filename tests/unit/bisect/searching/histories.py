"""Random histories for the searches, and runs of a search against a known culprit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from canary.bisect.model import Search, Seen, State


@dataclass(frozen=True)
class History:
    """A space whose states are commits with all that came before them."""

    prior: Sequence[float]
    commits: Sequence[State]

    def states(self, posterior: Sequence[float]) -> Sequence[State]:
        assert len(posterior) == len(self.prior)
        assert abs(sum(posterior) - 1.0) < 1e-6
        return [state for state in self.commits if state != self.bad]

    @property
    def bad(self) -> State:
        return (1 << len(self.prior)) - 1


def flat(count: int) -> list[float]:
    return [1.0 / count] * count


def line(count: int, prior: Sequence[float] | None = None) -> History:
    """A history without merges."""
    return History(prior or flat(count), [(2 << number) - 1 for number in range(count)])


@st.composite
def graphs(draw: st.DrawFn, most: int = 40) -> History:
    """A random graph of commits: each has one or two earlier ones as parents, or the good end."""
    count = draw(st.integers(1, most))
    states: list[State] = []
    for number in range(count):
        parents = draw(st.lists(st.integers(-1, number - 1), min_size=1, max_size=2))
        held = 1 << number
        for parent in parents:
            held |= states[parent] if parent >= 0 else 0
        states.append(held)
    return History(draw(priors(count)), states)


@st.composite
def priors(draw: st.DrawFn, count: int) -> list[float]:
    """Probabilities of `count` suspects, some of them 0."""
    weights = draw(st.lists(st.integers(0, 100), min_size=count, max_size=count))
    total = sum(weights)
    return [weight / total for weight in weights] if total else flat(count)


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
