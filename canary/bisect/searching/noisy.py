"""Search by values that vary: the next launch is always the one that should tell the most.

Launches of both ends stand between those of the candidates, so that a machine that drifts is seen
to drift. A suspect is the answer when its probability reaches a level.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

from canary.bisect.model import Answer, Seen, Space, State
from canary.bisect.searching.explanations import LEVEL, Explanations, launches_needed
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
from canary.compare.timing.estimate import Spread, signed_percent

LARGEST_LOG = 1000.0
NOTHING = 0.97
"""Probability at which the search ends because no change of interest is there."""
LEAST_OF_EACH_END = 4
"""Launches of each end at least, before that."""
END_EVERY = 4
"""One of so many launches is an end, at least."""
LOOKED_AT = 8
"""Candidates that divide the suspects best, whose information is computed; likewise suspects."""


class NoisySearch:
    """Asks for launches of both ends and of candidates until one suspect is sure enough."""

    def __init__(
        self,
        space: Space,
        spread: Spread | None,
        effect: float,
        budget: int | None,
        level: float,
    ) -> None:
        self._space = space
        self._effect = effect
        self._budget = budget
        self._level = level
        self._weights = tempered(space.prior)
        self._full: State = (1 << len(self._weights)) - 1
        self._explanations = Explanations(self._weights, spread, effect)
        self._launched: dict[State, int] = {}
        self._order: list[State] = []
        self._skipped: list[State] = []
        self._why_not = "" if self._weights else NOTHING_BETWEEN
        self._chosen: tuple[State | None] | None = None
        self._known_answer: Answer | None = None

    def ask(self) -> State | None:
        """Return the state to launch next; None if the answer is known or cannot be."""
        if self._chosen is None:
            self._chosen = (self._choose(),)
        return self._chosen[0]

    def tell(self, seen: Seen) -> None:
        """Take the value of a launch, or that a state cannot run.

        Raises:
            ValueError: there is no value, or it is not the logarithm of a finite number.
        """
        self._chosen = self._known_answer = None
        if seen.outcome == "skip":
            self._skip(seen.state)
            return
        if seen.value is None or not abs(seen.value) < LARGEST_LOG:
            raise ValueError(
                f"a noisy search needs the logarithm of a metric or a skip, not {seen}"
            )
        self._order.append(seen.state)
        self._launched[seen.state] = self._launched.get(seen.state, 0) + 1
        self._explanations.launched(seen.state, seen.value)

    def stop(self, reason: str = "It was stopped.") -> None:
        """End the search; the answer says why unless it is decided."""
        self._why_not = self._why_not or reason
        self._chosen = None

    def posterior(self) -> Sequence[float]:
        """Return the probability of each suspect if something changed."""
        return normalised(self._explanations.suspects())

    def answer(self) -> Answer:
        """Return the suspects that are most probable, and whether that is sure enough."""
        if not self._order or not self._weights:
            why = self._why_not or "Nothing ran yet."
            return Answer((), 0.0, False, why)
        alike = self._ends_alike()
        if alike:
            return Answer((), 0.0, False, alike)
        found = self._found()
        if found.decided:
            return found
        why = self._why_not or self._spent() or "More launches are needed."
        return Answer(found.suspects, found.probability, False, why)

    def effect(self) -> tuple[float, float]:
        """Return the change between the ends and its standard deviation, in logarithms."""
        return self._explanations.effect()

    def runs_left(self) -> float:
        """Return about how many launches it still asks for."""
        if self.ask() is None:
            return 0.0
        mean, sd = self.effect()
        sure = mean * mean / (mean * mean + 4.0 * sd * sd) if self._order else 0.0
        change = max(self._effect, sure * mean + (1.0 - sure) * 2.0 * self._effect)
        missing = entropy(self.posterior())
        left = launches_needed(missing, self._level, change, self._explanations.noise_sd())
        left = max(1.0, left * min(1.0, 0.2 + missing))
        ends = sum(max(0, 2 - self._launched.get(end, 0)) for end in (0, self._full))
        if self._budget is not None:
            return min(left + ends, float(self._budget - len(self._order)))
        return left + ends

    def _choose(self) -> State | None:
        if self._why_not:
            return None
        if self._spent():
            return None
        for end, times in ((0, 1), (self._full, 2), (0, 2)):
            if self._launched.get(end, 0) < times:
                return end
        if self._ends_alike() or self._found().decided:
            return None
        ends = sorted((0, self._full), key=self._last)
        if not {0, self._full} & set(self._order[1 - END_EVERY :]):
            return ends[0]
        return self._most_telling(ends)

    def _most_telling(self, ends: Sequence[State]) -> State | None:
        """Return the end or candidate whose launch is expected to tell the most."""
        outlook = self._explanations.outlook()
        masses = Masses(self.posterior())
        skipped = Skipped(self._skipped)
        rated: list[tuple[float, int, State, float]] = []
        for state in self._runnable():
            chance = skipped.chance_to_run(state)
            rated.append((-halving(masses.of(state)) * chance, len(rated), state, chance))
        rated.sort()
        best, most = ends[0], outlook.told_by(ends[0])
        for _, _, state, chance in rated[:LOOKED_AT]:
            told = chance * outlook.told_by(state)
            if told > most * (1.0 + 1e-9):
                best, most = state, told
        return best

    def _runnable(self) -> list[State]:
        """Return the candidates: those that the space offers and those that ran already."""
        offered = [*self._space.states(self.posterior()), *self._launched]
        ends = {0, self._full}
        return [s for s in dict.fromkeys(offered) if s not in ends and s not in self._skipped]

    def _found(self) -> Answer:
        """Return the most probable suspects that no state divides."""
        if self._known_answer is None:
            self._known_answer = self._find()
        return self._known_answer

    def _find(self) -> Answer:
        worse = 1.0 - self._explanations.no_change()
        worse *= self._explanations.chance_above(0.0)
        posterior = self.posterior()
        masses = Masses(posterior)
        states = self._runnable()
        best, most = 0, 0.0
        for first in heapq.nlargest(LOOKED_AT, range(len(posterior)), key=posterior.__getitem__):
            group = self._full
            for state in states:
                group &= state if state >> first & 1 else ~state
            if masses.of(group) > most:
                best, most = group, masses.of(group)
        suspects = tuple(sorted(bits(best), key=lambda i: -posterior[i]))
        why = ""
        if len(suspects) > 1:
            hiding = sum((state & best) not in (0, best) for state in self._skipped)
            why = hidden_by(hiding)
        return Answer(suspects, most * worse, most * worse >= self._level, why)

    def _ends_alike(self) -> str:
        ends = [self._launched.get(end, 0) for end in (0, self._full)]
        if min(ends) < LEAST_OF_EACH_END:
            return ""
        nothing = self._explanations.no_change()
        small = self._explanations.chance_above(self._effect) * (1.0 - nothing)
        if nothing < NOTHING and small > 1.0 - NOTHING:
            return ""
        mean, sd = self.effect()
        return (
            f"The ends do not differ: change {percent(mean)}, at most {percent(mean + 2.0 * sd)}, "
            f"in {sum(ends)} launches of both ends."
        )

    def _spent(self) -> str:
        if self._budget is None or len(self._order) < self._budget:
            return ""
        return f"The budget of {self._budget} launches is spent."

    def _last(self, end: State) -> int:
        """Return when an end ran last."""
        return max((i for i, state in enumerate(self._order) if state == end), default=-1)

    def _skip(self, state: State) -> None:
        if state in (0, self._full):
            self._why_not = f"The {'bad' if state else 'good'} end cannot run."
        elif state not in self._skipped:
            self._skipped.append(state)


def percent(change: float) -> str:
    """Return a change of a logarithm in percent, with its sign."""
    return signed_percent(100.0 * math.expm1(change))


def noisy_search(
    space: Space,
    *,
    spread: Spread | None,
    effect: float,
    budget: int | None = None,
    level: float = LEVEL,
) -> NoisySearch:
    """Return a search by values that vary.

    `spread` is that of the logarithm of one launch, if it was measured before. `effect` is the
    least change of interest, as a logarithm. `budget` is the largest number of launches. A suspect
    is the answer when its probability reaches `level`.
    """
    return NoisySearch(space, spread, effect, budget, level)
