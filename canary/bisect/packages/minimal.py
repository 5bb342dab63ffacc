"""Search for the smallest set of suspects that shows it: one, or several that are needed together.

An engine finds a single culprit. It cannot see that no single one is: so its answer is tried alone,
and all others are tried without it. If it does not show it alone, delta debugging finds the set:
the shortest bad row of suspects ends with one that is needed, then the same again beside it.
Source: A. Zeller and R. Hildebrandt, Simplifying and Isolating Failure-Inducing Input (2002); the
halving of each row is that of U. Junker, QuickXplain (2004).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace

from canary.bisect.model import Answer, Search, Seen, Space, State

Runs = Generator[State, Seen, None]
"""Yields the state to run, and gets what it showed."""


@dataclass(frozen=True)
class _Whether:
    """The question whether one set shows it: either its suspects do, or the others."""

    prior: Sequence[float] = (0.5, 0.5)

    def states(self, posterior: Sequence[float]) -> Sequence[State]:
        """Return the set itself."""
        return [1]


class SetSearch:
    """Asks an engine for one culprit, and for more if that one is not all."""

    def __init__(
        self,
        make: Callable[[Space], Search],
        space: Space,
        fits: Callable[[State], bool] = lambda state: True,
        order: Sequence[int] = (),
    ) -> None:
        """`fits`: whether a set can be installed. `order`: related suspects are neighbours."""
        count = len(space.prior)
        self._make, self._fits = make, fits
        self._order = list(order) or list(range(count))
        self._full: State = (1 << count) - 1
        self._inner = make(space)
        self._told: list[Seen] = []
        self._searching = True
        self._next: State | None = None
        self._runs: Runs | None = None
        self._verdicts: dict[State, bool | None] = {0: False, self._full: True}
        self._answer: Answer | None = None
        self.others: bool | None = None
        """Whether it is still there without the answer; None: not known."""

    def ask(self) -> State | None:
        """Return the state to run next; None if nothing more can be found out."""
        if self._runs is None:
            self._runs = self._plan()
            self._next = next(self._runs, None)
        return self._next

    def tell(self, seen: Seen) -> None:
        """Take what a run showed."""
        if self._runs is None:
            self._inner.tell(seen)
            self._told.append(seen)
            return
        self._told.append(seen)
        try:
            self._next = self._runs.send(seen)
        except StopIteration:
            self._next = None

    def posterior(self) -> Sequence[float]:
        """Return the probability of each suspect; of a set, equal shares."""
        if self._answer is None or not self._answer.together:
            return self._inner.posterior()
        chosen = self._answer.suspects
        return [(one in chosen) / len(chosen) for one in range(len(self._order))]

    def answer(self) -> Answer:
        """Return what is known now."""
        return self._answer or self._inner.answer()

    def runs_left(self) -> float:
        """Return how many more runs it expects to ask for; two confirm the engine's answer."""
        if self.ask() is None:
            return 0.0
        return self._inner.runs_left() + 2.0 if self._searching else 1.0

    def _plan(self) -> Runs:
        while (state := self._inner.ask()) is not None:
            self._inner.tell((yield state))
        self._searching = False
        found = self._inner.answer()
        if not self._ends_differ():
            return
        chosen = sum(1 << one for one in found.suspects) if found.decided else 0
        alone = None
        if chosen:
            alone = yield from self._shows(chosen)
        if chosen and alone is not False:
            self._answer = found
        elif not found.decided and found.suspects:
            return
        else:
            chosen = yield from self._smallest()
            self._answer = yield from self._judged(chosen)
        self.others = yield from self._shows(self._full & ~chosen)

    def _ends_differ(self) -> bool:
        """Whether no end contradicts the question."""
        ends = {0: "good", self._full: "bad"}
        return all(
            seen.outcome in (None, ends.get(seen.state, seen.outcome)) for seen in self._told
        )

    def _smallest(self) -> Generator[State, Seen, State]:
        """Return a bad set without which none of its suspects suffices; unknown sets count as
        good."""
        needed: State = 0
        row = list(self._order)
        while row and not (yield from self._shows(needed)):
            low, high = 1, len(row)
            while low < high:
                middle = (low + high) // 2
                first = needed | sum(1 << one for one in row[:middle])
                if (yield from self._shows(first)):
                    high = middle
                else:
                    low = middle + 1
            needed |= 1 << row[low - 1]
            row = row[: low - 1]
        return needed

    def _judged(self, chosen: State) -> Generator[State, Seen, Answer]:
        suspects = tuple(one for one in range(len(self._order)) if chosen >> one & 1)
        shows = yield from self._shows(chosen)
        if not shows or not suspects:
            return Answer((), 0.0, False, "No set of suspects shows it alone.")
        if len(suspects) == 1:
            return Answer(suspects, 1.0, True)
        apart = []
        for one in suspects:
            apart.append((yield from self._shows(chosen & ~(1 << one))))
        why = "" if None not in apart else "Some of them cannot run without the others."
        return Answer(suspects, 1.0, True, why, together=True)

    def _shows(self, state: State) -> Generator[State, Seen, bool | None]:
        """Return whether a set shows it; None if it cannot run, or is too noisy to tell."""
        if state in self._verdicts:
            return self._verdicts[state]
        exact = {seen.outcome for seen in self._told if seen.state == state and seen.outcome}
        if exact:
            verdict = None if "skip" in exact else exact == {"bad"}
        elif not self._fits(state):
            verdict = None
        else:
            verdict = yield from self._measured(state)
        self._verdicts[state] = verdict
        return verdict

    def _measured(self, state: State) -> Generator[State, Seen, bool | None]:
        """Ask a new engine about one set; it knows all earlier runs of the set and of the ends."""
        engine = self._make(_Whether())
        places: dict[State, State] = {0: 0, state: 1, self._full: 3}
        states = {place: one for one, place in places.items()}
        for seen in self._told:
            if seen.state in places:
                engine.tell(replace(seen, state=places[seen.state]))
        while (place := engine.ask()) is not None:
            seen = yield states[place]
            engine.tell(replace(seen, state=place))
        found = engine.answer()
        return found.suspects == (0,) if found.decided and len(found.suspects) == 1 else None
