"""Simulated launches of a history's commits on a noisy machine, to judge searches for a commit.

The module knows nothing of the searches, and was written before them. A seed stands for one
machine on one day, one history and one culprit. A launch costs one tick of the machine's time.

Where the sizes are from: all of them are assumed, none was measured for this module.

- `noise`: standard deviation of the logarithm of a launch. Its shape differs between machines:
  normal, skewed to slow (gamma with shape 2), or two modes (placement on one of two sockets).
- `walk`: clocks, temperature and neighbours move the machine's level by 1% between two launches.
- `jump`: after 10 to 30 launches, the level jumps by 8 to 25%, up or down, and stays there.
- `outliers`: one launch of twenty is 10 to 60% slow. Of the disturbances, 30% last for two or
  three launches, as a neighbour's job does.
- `uneven`: each commit is faster or slower by itself, by 1% (layout of code, order of imports).
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

State = int
"""Bits of the commits that it holds."""
MEAN_DISTURBANCE = 0.7 * 1 + 0.3 * 2.5
"""Launches that a disturbance lasts."""


@dataclass(frozen=True)
class Place:
    """What moves a machine's times, apart from its noise."""

    name: str
    walk: float = 0.0
    jump: tuple[float, float] = (0.0, 0.0)
    outliers: float = 0.0
    uneven: float = 0.0


PLACES: Mapping[str, Place] = {
    each.name: each
    for each in (
        Place("steady"),
        Place("walk", walk=0.01),
        Place("jump", jump=(0.08, 0.25)),
        Place("outliers", outliers=0.05),
        Place("all of it", walk=0.01, jump=(0.08, 0.25), outliers=0.05),
        Place("uneven commits", uneven=0.01),
    )
}


class Machine:
    """Runs states; `change` is the culprit's, as a share: 0.1 is 10% slower."""

    def __init__(
        self, draw: random.Random, place: Place, noise: float, change: float, culprit: int
    ) -> None:
        self._draw = draw
        self._place = place
        self._noise = noise
        self._change = math.log1p(change)
        self._culprit = culprit
        self._shape = draw.choice(("normal", "skewed", "two modes"))
        self._level = draw.uniform(0.0, 6.0)
        self._jumps_at = draw.randint(10, 30)
        self._disturbed, self._slower = 0, 0.0
        self._own: dict[State, float] = {}
        self.launches = 0

    def launch(self, state: State) -> float:
        """Return the logarithm of the seconds of one launch."""
        self.launches += 1
        self._move()
        value = self._level + self._one_noise() + self._disturbance() + self._offset(state)
        return value + (self._change if state >> self._culprit & 1 else 0.0)

    def _move(self) -> None:
        self._level += self._draw.gauss(0.0, self._place.walk)
        size, sign = self._draw.uniform(*self._place.jump), self._draw.choice((-1, 1))
        if self.launches == self._jumps_at:
            self._level += sign * math.log1p(size)

    def _one_noise(self) -> float:
        if self._shape == "normal":
            return self._draw.gauss(0.0, self._noise)
        if self._shape == "skewed":
            return self._noise * (self._draw.gammavariate(2.0, 1.0) - 2.0) / math.sqrt(2.0)
        mode = self._draw.choice((-0.8, 0.8))
        return self._noise * (mode + 0.6 * self._draw.gauss(0.0, 1.0))

    def _disturbance(self) -> float:
        starts, long = self._draw.random(), self._draw.random() < 0.3
        slower, lasts = self._draw.uniform(0.1, 0.6), self._draw.randint(2, 3)
        if not self._disturbed and starts < self._place.outliers / MEAN_DISTURBANCE:
            self._disturbed, self._slower = (lasts if long else 1), slower
        if not self._disturbed:
            return 0.0
        self._disturbed -= 1
        return math.log1p(self._slower)

    def _offset(self, state: State) -> float:
        if state not in self._own:
            self._own[state] = self._draw.gauss(0.0, self._place.uneven)
        return self._own[state]


def linear(commits: int) -> list[State]:
    """Return the states of a history without merges, the oldest first; the last is the bad end."""
    return [(2 << number) - 1 for number in range(commits)]


def merged(draw: random.Random, commits: int) -> list[State]:
    """Return the states of a history of branches and merges, parents first; the last holds all.

    Up to four branches are open. A commit goes on with one, opens one, or merges two of them.
    """
    heads: list[State] = [0]
    states: list[State] = []
    for number in range(commits):
        left = commits - number
        mine = heads.pop(draw.randrange(len(heads)))
        kind = draw.random()
        if heads and (kind < 0.25 or len(heads) >= left):
            mine |= heads.pop(draw.randrange(len(heads)))
        elif kind > 0.8 and len(heads) < min(3, left - 2):
            heads.append(mine)
        states.append(mine | 1 << number)
        heads.append(states[-1])
    assert len(heads) == 1, "a branch is left open"
    return states


def broken(draw: random.Random, states: Sequence[State]) -> frozenset[State]:
    """Return the states that do not build: two stretches of 2 to 5 commits, never the bad end."""
    inner = states[:-1]
    found: set[State] = set()
    for _ in range(2):
        first, length = draw.randrange(len(inner)), draw.randint(2, 5)
        found.update(inner[first : first + length])
    return frozenset(found)
