"""The states worth a run: sets of packages that go together, and the versions of one package."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from canary.bisect.model import State

RARE = 1e-6
"""Suspects below this probability need no state of their own."""
MOST_CUTS = 32
"""Places where the order is cut, evenly spread."""
MIXED = 12
"""Sets that no order explains, for packages whose neighbours do not go together."""


@dataclass(frozen=True)
class PackageSpace:
    """Sets of changed packages: first halves of groups that require each other."""

    prior: Sequence[float]
    order: Sequence[int]
    """The suspects; those that require each other are neighbours."""
    repaired: Callable[[State], State | None]
    """Returns the nearest set whose packages go together."""

    def states(self, posterior: Sequence[float]) -> Sequence[State]:
        """Return sets that split the suspects which are left."""
        alive = [one for one in self.order if posterior[one] > RARE]
        full = (1 << len(posterior)) - 1
        masks = []
        step = max(1, -(-len(alive) // MOST_CUTS))
        for count in range(1, len(alive) + 1, step):
            first = sum(1 << one for one in alive[:count])
            masks += [first, full & ~first, 1 << alive[count - 1], full & ~(1 << alive[count - 1])]
        chance = random.Random(len(alive))
        masks += [sum(1 << one for one in alive if chance.random() < 0.5) for _ in range(MIXED)]
        found = dict.fromkeys(self.repaired(mask) for mask in masks)
        return [state for state in found if state is not None and state not in (0, full)]


@dataclass(frozen=True)
class VersionSpace:
    """The versions of one package: each holds all changes up to itself."""

    prior: Sequence[float]

    def states(self, posterior: Sequence[float]) -> Sequence[State]:
        """Return the versions between both ends."""
        return [(1 << count) - 1 for count in range(1, len(posterior))]
