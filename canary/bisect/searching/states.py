"""States as sets of suspects: how probable it is that one holds the culprit, and that it runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from operator import getitem

from canary.bisect.model import State

NOTHING_BETWEEN = "Both ends are the same: nothing changed between them."


def bits(state: State) -> Iterator[int]:
    """Yield the suspects of a state, in order."""
    while state:
        lowest = state & -state
        yield lowest.bit_length() - 1
        state ^= lowest


class Masses:
    """Adds up the weights of a state's suspects, by whole bytes of the state."""

    def __init__(self, weights: Sequence[float]) -> None:
        self._bytes = (len(weights) + 7) // 8
        self._tables = [_sums(weights[start : start + 8]) for start in range(0, len(weights), 8)]

    def of(self, state: State) -> float:
        """Return the sum of the weights of a state's suspects."""
        found = state.to_bytes(self._bytes, "little")
        return sum(map(getitem, self._tables, found))


def _sums(weights: Sequence[float]) -> list[float]:
    sums = [0.0]
    for weight in weights:
        sums += [weight + value for value in sums]
    return sums + [0.0] * (256 - len(sums))


class Skipped:
    """States that did not run, and how far around them others are likely not to run either."""

    def __init__(self, states: Sequence[State]) -> None:
        near = 2 * len(states)
        self._reach = {
            state: sum((state ^ other).bit_count() <= near for other in states) for state in states
        }

    def chance_to_run(self, state: State) -> float:
        """Return the probability that a state runs.

        One skipped state halves the chance of its neighbours; several close together reach further.
        """
        chance = 1.0
        for other, reach in self._reach.items():
            away = (state ^ other).bit_count()
            chance = min(chance, away / (away + reach))
        return chance


PRIOR_SHARE = 0.5
"""Of the weights, the share that follows the prior."""


def tempered(prior: Sequence[float]) -> list[float]:
    """Return the mean of a prior and of equal shares, so that a wrong prior excludes nothing."""
    equal = (1.0 - PRIOR_SHARE) / max(len(prior), 1)
    return [PRIOR_SHARE * probability + equal for probability in prior]


def halving(share: float) -> float:
    """Return the bits that a yes or no tells whose probability of yes is `share`."""
    if share <= 0.0 or share >= 1.0:
        return 0.0
    return -share * math.log2(share) - (1.0 - share) * math.log2(1.0 - share)


def entropy(weights: Sequence[float]) -> float:
    """Return the bits that are missing until one suspect is sure; the weights add up to any sum."""
    total = math.fsum(weights)
    if total <= 0.0:
        return 0.0
    return -math.fsum(w / total * math.log2(w / total) for w in weights if w > 0.0)


def normalised(weights: Sequence[float]) -> list[float]:
    """Return the weights with the sum 1; equal ones if all are 0."""
    total = math.fsum(weights)
    if total <= 0.0:
        return [1.0 / len(weights) for _ in weights]
    return [weight / total for weight in weights]


def hidden_by(states: int) -> str:
    """Return why several suspects are left, of which `states` skipped ones would know more."""
    if not states:
        return "Nothing that can run lies between them."
    if states == 1:
        return "The one that could tell does not run."
    return f"The {states} that could tell do not run."
