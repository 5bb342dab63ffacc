"""The search for a culprit among suspects, as `git bisect` does it: each run halves what is left.

A *suspect* is one step that may be the culprit: a commit, a package, one version of it. A *state*
is what can be run: it holds some of the suspects, as the bits of an integer. The good end holds
none, the bad end all. One suspect is the culprit, and a state is bad if it holds it.

A search knows no process, clock or git. It asks for a run and is told what the run showed. Told the
same in the same order, it asks the same again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

State = int
"""Bits of the suspects that it holds."""
Outcome = Literal["good", "bad", "skip"]
"""`skip`: it does not build, or does not run."""
States = Callable[[State], Sequence[State]]
"""Returns the states that can be run to divide some suspects, without both ends."""


class CannotRun(Exception):
    """A state does not build or does not run; the text says why. The search skips it."""


@dataclass(frozen=True)
class Seen:
    """What one run of a state showed: an outcome, or a value."""

    state: State = 0
    outcome: Outcome | None = None
    value: float | None = None
    """More is worse; usually a logarithm."""
    label: str = ""
    words: str = ""
    """The same for people: the state's name, what the run showed."""


@dataclass(frozen=True)
class Answer:
    """What a search knows."""

    suspects: tuple[int, ...] = ()
    """The culprit. Several if no state that runs divides them, or if it takes all of them."""
    probability: float = 0.0
    decided: bool = False
    reason: str = ""
    """Why it is not decided, or why several are left."""
    together: bool = False
    """It takes all of `suspects`."""
    others: bool = False
    """Another suspect shows it too."""


class Search(Protocol):
    """Asks for runs until it can answer."""

    def ask(self) -> State | None:
        """Return the state to run next; None: nothing more can be found out."""

    def tell(self, seen: Seen) -> None:
        """Take what a run showed."""

    def posterior(self) -> Sequence[float]:
        """Return the probability of each suspect."""

    def answer(self) -> Answer:
        """Return what is known now."""


class Halving:
    """The search for a signal without noise; both ends are known. See `Search`."""

    def __init__(self, count: int, states: States) -> None:
        self._count, self._states = count, states
        self._alive: State = (1 << count) - 1
        self._bad = self._alive
        """The last bad state. All others to run lie within it, as git demands."""
        self._told: dict[State, Outcome] = {}
        self._skipped: list[State] = []

    def ask(self) -> State | None:
        left, best, most = self._alive.bit_count(), None, 0.0
        for state in self._states(self._alive) if left else ():
            if state not in self._told and not state & ~self._bad:
                gain = halving((state & self._alive).bit_count() / left)
                gain *= chance_to_run(state, self._skipped)
                if gain > most * (1.0 + 1e-9):
                    best, most = state, gain
        return best

    def tell(self, seen: Seen) -> None:
        assert seen.outcome is not None
        self._told[seen.state] = seen.outcome
        if seen.outcome == "skip":
            self._skipped.append(seen.state)
        elif seen.outcome == "bad":
            self._bad = seen.state
            self._alive &= seen.state
        else:
            self._alive &= ~seen.state

    def posterior(self) -> Sequence[float]:
        left = max(1, self._alive.bit_count())
        return [(self._alive >> one & 1) / left for one in range(self._count)]

    def answer(self) -> Answer:
        left = tuple(bits(self._alive))
        if not left:
            return Answer(reason="the outcome is not repeatable: runs contradict each other")
        if self.ask() is not None:
            return Answer(left, 1.0, reason=f"{len(left)} suspects are left")
        return Answer(left, 1.0, True, hidden_by(self._alive, self._skipped))


def bits(state: State) -> Iterator[int]:
    """Yield the suspects of a state, in order."""
    while state:
        lowest = state & -state
        yield lowest.bit_length() - 1
        state ^= lowest


def halving(share: float) -> float:
    """Return the bits that a yes or no tells whose probability of yes is `share`."""
    if share <= 0.0 or share >= 1.0:
        return 0.0
    return -share * math.log2(share) - (1.0 - share) * math.log2(1.0 - share)


def chance_to_run(state: State, skipped: Sequence[State]) -> float:
    """Return how probable it is that a state runs. A skipped state halves the chance of its
    neighbours; the more were skipped, the further that reaches."""
    away = min(((state ^ other).bit_count() for other in skipped), default=1)
    return away / (away + len(skipped))


def hidden_by(suspects: State, skipped: Sequence[State]) -> str:
    """Return why several suspects are left; empty for one."""
    if suspects.bit_count() == 1:
        return ""
    hiding = sum(state & suspects not in (0, suspects) for state in skipped)
    return f"{hiding} between them did not run" if hiding else "nothing between them can run"


Make = Callable[[int, States], Search]
"""Makes a search for one of so many suspects."""
Whether = Generator[State, Seen, bool]
"""Yields the state to run, gets what it showed, and returns whether a set shows it."""


class SetSearch:
    """The search for the smallest set of suspects that shows it: one, or several needed together.

    Delta debugging finds it: the shortest bad row of suspects ends with one that is needed, then
    the same again beside it. A single culprit of n takes log2(n) sets, as any halving.
    Source: A. Zeller and R. Hildebrandt, Simplifying and Isolating Failure-Inducing Input (2002);
    the halving of each row is that of U. Junker, QuickXplain (2004).
    """

    def __init__(self, make: Make, count: int) -> None:
        """`make`: makes the search that asks about one set, for as many runs as it needs."""
        self._make, self._count = make, count
        self._full: State = (1 << count) - 1
        self._told: list[Seen] = []
        self._left = self._full
        self._answer = Answer(reason="more sets have to run")
        self._plan: Generator[State, Seen, None] | None = None
        self._next: State | None = None

    def ask(self) -> State | None:
        if self._plan is None:
            self._plan = self._smallest()
            self._next = next(self._plan, None)
        return self._next

    def tell(self, seen: Seen) -> None:
        self._told.append(seen)
        if self._plan is not None:
            try:
                self._next = self._plan.send(seen)
            except StopIteration:
                self._next = None

    def posterior(self) -> Sequence[float]:
        return [(self._left >> one & 1) / self._left.bit_count() for one in range(self._count)]

    def answer(self) -> Answer:
        return self._answer

    def _smallest(self) -> Generator[State, Seen, None]:
        needed, row = 0, list(range(self._count))
        while row and not (yield from self._shows(needed)):
            low, high = 1, len(row)
            while low < high:
                middle = (low + high) // 2
                if (yield from self._shows(needed | sum(1 << one for one in row[:middle]))):
                    high = middle
                else:
                    low = middle + 1
                self._left = needed | sum(1 << one for one in row[low - 1 : high])
            needed |= 1 << row[low - 1]
            row = row[: low - 1]
        if not (yield from self._shows(needed)):
            self._answer = Answer(reason="no set of suspects shows it alone")
            return
        self._left, suspects = needed, tuple(bits(needed))
        others = yield from self._shows(self._full & ~needed)
        self._answer = Answer(suspects, 1.0, True, together=len(suspects) > 1, others=others)

    def _shows(self, state: State) -> Whether:
        """Return whether a set shows it. One that cannot run, or is too noisy to tell, does not.

        A new search asks whether the set's suspects do, or the others. It knows all runs of the set
        and of the ends.
        """
        if state in (0, self._full):
            return bool(state)
        search = self._make(2, lambda likely: [1])
        places: dict[State, State] = {0: 0, state: 1, self._full: 3}
        states = {place: one for one, place in places.items()}
        for seen in self._told:
            if seen.state in places:
                search.tell(replace(seen, state=places[seen.state]))
        while (place := search.ask()) is not None:
            seen = yield states[place]
            search.tell(replace(seen, state=place))
        found = search.answer()
        return found.decided and found.suspects == (0,)
