"""Search with outcomes that never vary: each run halves what is left, as `git bisect` does.

Weights decide what half is: the mean of the prior and of equal shares. So a good prior saves runs,
and a wrong one costs few: a suspect that the prior excludes keeps half of its equal share.
"""

from __future__ import annotations

from collections.abc import Sequence

from canary.bisect.model import Answer, Seen, Space, State
from canary.bisect.searching.states import (
    NOTHING_BETWEEN,
    Masses,
    Skipped,
    bits,
    entropy,
    halving,
    hidden_by,
    normalised,
    tempered,
)


class ExactSearch:
    """Asks for both ends, then for the state that splits what is left most evenly."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._prior = list(space.prior)
        count = len(self._prior)
        self._weights = tempered(self._prior)
        self._full: State = (1 << count) - 1
        self._alive: State = self._full
        self._told: dict[State, str] = {}
        self._why_not = "" if count else NOTHING_BETWEEN
        self._next: State | None = None
        self._chosen = False

    def ask(self) -> State | None:
        """Return the state to run next; None if nothing more can be found out."""
        if not self._chosen:
            self._next, self._chosen = self._choose(), True
        return self._next

    def tell(self, seen: Seen) -> None:
        """Take an outcome.

        Raises:
            ValueError: the run has no outcome.
        """
        if seen.outcome is None:
            raise ValueError("an exact search needs an outcome")
        self._chosen = False
        before = self._told.setdefault(seen.state, seen.outcome)
        if before != seen.outcome and "skip" not in (before, seen.outcome):
            self._not_repeatable("the same state was good and bad")
        if before == "skip":
            self._told[seen.state] = seen.outcome
        self._judge_end(seen)
        if seen.outcome == "skip":
            return
        left = self._alive & (seen.state if seen.outcome == "bad" else ~seen.state)
        if left:
            self._alive = left
        else:
            self._not_repeatable(f"a state is {seen.outcome} against what other states showed")

    def posterior(self) -> Sequence[float]:
        """Return the probability of each suspect; the prior's if nothing could be decided."""
        if not self._prior:
            return []
        alive = [weight * (self._alive >> i & 1) for i, weight in enumerate(self._prior)]
        if not sum(alive):
            alive = [float(self._alive >> i & 1) for i in range(len(self._prior))]
        return normalised(alive)

    def answer(self) -> Answer:
        """Return the suspects that are left; none if the ends or the outcomes contradict."""
        if self._why_not:
            return Answer((), 0.0, False, self._why_not)
        posterior = self.posterior()
        left = tuple(sorted(bits(self._alive), key=lambda i: -posterior[i]))
        if self.ask() is not None:
            why = f"{len(left)} suspects are left." if len(left) > 1 else "An end did not run yet."
            return Answer(left[:1], posterior[left[0]], False, why)
        return Answer(left, 1.0, True, self._hidden() if len(left) > 1 else "")

    def runs_left(self) -> float:
        """Return the expected number of runs: the missing bits, and the ends."""
        if self.ask() is None:
            return 0.0
        ends = sum(end not in self._told for end in {0, self._full})
        return ends + entropy([self._weights[i] for i in bits(self._alive)])

    def _choose(self) -> State | None:
        if self._why_not:
            return None
        for end in (0, self._full):
            if end not in self._told:
                return end
        masses = Masses(self._weights)
        total = masses.of(self._alive)
        skipped = Skipped(self._skipped())
        best, most = None, 0.0
        for state in self._space.states(self.posterior()):
            held = state & self._alive
            if state in self._told or held in (0, self._alive):
                continue
            gain = halving(masses.of(held) / total) * skipped.chance_to_run(state)
            if gain > most * (1.0 + 1e-9):
                best, most = state, gain
        return best

    def _judge_end(self, seen: Seen) -> None:
        if seen.state == 0 and seen.outcome != "good":
            shown = "cannot run." if seen.outcome == "skip" else "shows it too."
            self._why_not = f"The good end {shown}"
        elif seen.state == self._full and seen.outcome != "bad":
            shown = "cannot run." if seen.outcome == "skip" else "does not show it."
            self._why_not = f"The bad end {shown}"

    def _not_repeatable(self, why: str) -> None:
        self._why_not = self._why_not or f"The outcome is not repeatable: {why}."

    def _skipped(self) -> list[State]:
        return [state for state, outcome in self._told.items() if outcome == "skip"]

    def _hidden(self) -> str:
        hiding = sum((state & self._alive) not in (0, self._alive) for state in self._skipped())
        return hidden_by(hiding)


def exact_search(space: Space) -> ExactSearch:
    """Return a search for outcomes that never vary."""
    return ExactSearch(space)
