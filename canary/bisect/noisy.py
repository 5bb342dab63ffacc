"""The search by values that vary from launch to launch, such as step time.

The value of launch t is `level(t) + effect * bad(t) + noise(t)`. The level moves between launches:
a little each time, and seldom far. The noise is normal, and seldom a launch is slow. So each launch
is plain, slow, or the first after a jump. What is known of (level, effect) is a normal distribution
with the moments of these three: GPB1 (Bar-Shalom, Li and Kirubarajan, Estimation with Applications
to Tracking and Navigation, 2001, 11.6). Launches of both ends come between those of candidates:
they show a machine that drifts.

What explains the launches is a suspect, with each belief of the noise. Suspects that the same runs
held are one *cause* until a run divides them, so a thousand cost as little as ten.
"""

from __future__ import annotations

import heapq
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from canary.bisect.search import (
    Answer,
    Seen,
    State,
    States,
    bits,
    chance_to_run,
    halving,
    hidden_by,
)

SURE = 0.99
"""Probability at which a suspect is the answer."""
MOST = 200
"""Launches: if no suspect is sure then, the machine is too noisy to tell."""
END_EVERY = 3
"""One of so many launches is an end."""
SDS = tuple(0.003 * 1.45**power for power in range(18))
"""Beliefs of the standard deviation of a launch, equally probable at first."""
WALKS = {0.02: 0.45, 0.2: 0.35, 0.6: 0.2}
"""The level's move between two launches as a share of the noise, and how probable it is."""
OWN_SHARE = 0.25
"""A state differs by itself, by about this share of the least change of interest."""
KINDS = (
    (math.log(0.93), 0.0, 0.0, 0.0),
    (math.log(0.05), 0.25, 0.2**2, 0.0),
    (math.log(0.02), 0.0, 0.0, 0.2**2),
)
"""Plain, slow, first after a jump: log of the share, shift, more variance, move of the level."""
LEVEL_SD, EFFECT_MEAN, EFFECT_SD = 1.0, 0.2, 0.3
"""Before anything ran: a change by a factor of 2 is likely, one by 3 is not."""
FORGET = 3e-4
"""Probability below which a belief is not followed any more."""
RARE = 1e-6
"""Probability below which no state has to divide a suspect from others."""
LOOKED_AT = 8
"""The likeliest suspects, whose neighbours that no state divides are looked up."""


class Noise(NamedTuple):
    """A belief of the machine, in logarithms."""

    log_chance: float
    sd: float
    walk: float


class Known(NamedTuple):
    """A normal distribution of (level, effect)."""

    level: float
    effect: float
    level_var: float
    covariance: float
    effect_var: float


@dataclass
class Cause:
    """Suspects that no run divided, and what each belief knows if it is one of them."""

    members: State
    known: list[Known]
    fit: list[float]
    """How well the launches fit: logarithms of their density."""


class Noisy:
    """Launches states that halve the probability, until one suspect is sure; see `Search`."""

    def __init__(self, count: int, states: States, least: float) -> None:
        """`least`: the smallest change of interest."""
        self._count, self._states, self._least = count, states, least
        self._full: State = (1 << count) - 1
        self._launched: list[State] = []
        self._skipped: list[State] = []
        self._beliefs = [
            Noise(math.log(chance / len(SDS)), sd, walk * sd)
            for sd in SDS
            for walk, chance in WALKS.items()
        ]
        self._causes: list[Cause] = []
        self._chances: list[list[float]] = []
        """Probability of each belief (row) with each cause (column)."""
        self._shares: list[float] = []
        """Probability of each cause."""

    def tell(self, seen: Seen) -> None:
        if seen.value is None:
            self._skipped.append(seen.state)
            return
        if not self._launched:
            start = Known(seen.value, EFFECT_MEAN, LEVEL_SD**2, 0.0, EFFECT_SD**2)
            many = len(self._beliefs)
            self._causes = [Cause(self._full, [start] * many, [0.0] * many)]
        self._launched.append(seen.state)
        for cause in [*self._causes]:
            inside, outside = cause.members & seen.state, cause.members & ~seen.state
            if inside and outside:
                self._causes.append(Cause(outside, [*cause.known], [*cause.fit]))
                cause.members = inside
        for place, noise in enumerate(self._beliefs):
            trust = self._trust(noise, self._launched.count(seen.state))
            for cause in self._causes:
                bad = bool(cause.members & seen.state)
                cause.known[place], fit = learn(cause.known[place], noise, bad, seen.value, trust)
                cause.fit[place] += fit
        self._weigh()
        kept = [place for place, each in enumerate(self._chances) if sum(each) > FORGET]
        self._beliefs = [self._beliefs[place] for place in kept]
        for cause in self._causes:
            cause.known = [cause.known[place] for place in kept]
            cause.fit = [cause.fit[place] for place in kept]
        self._weigh()

    def _trust(self, noise: Noise, times: int) -> float:
        """Return how much the n-th launch of a state tells, as a share of a fresh one.

        The mean of n launches varies by own^2 + sd^2 / n: repeats cannot distinguish the state's
        own difference from the culprit's.
        """
        own, one = (OWN_SHARE * self._least) ** 2, noise.sd**2
        return one * one / ((times * own + one) * ((times - 1) * own + one))

    def _weigh(self) -> None:
        """Compute the probability of each cause with each belief, and of each cause."""
        prior = [cause.members.bit_count() / self._count for cause in self._causes]
        logs = [
            [
                noise.log_chance + math.log(before) + cause.fit[place]
                for before, cause in zip(prior, self._causes, strict=True)
            ]
            for place, noise in enumerate(self._beliefs)
        ]
        total = log_sum([one for each in logs for one in each])
        self._chances = [[math.exp(one - total) for one in each] for each in logs]
        self._shares = [math.fsum(column) for column in zip(*self._chances, strict=True)]

    def ask(self) -> State | None:
        for end, times in ((0, 1), (self._full, 2), (0, 2)):
            if self._launched.count(end) < times:
                return end
        if self.answer().decided or len(self._launched) >= MOST:
            return None
        able = self._runnable()
        if not able or {0, self._full}.isdisjoint(self._launched[1 - END_EVERY :]):
            return max((0, self._full), key=lambda end: self._launched[::-1].index(end))
        return max(
            able,
            key=lambda one: chance_to_run(one, self._skipped) * halving(self._held(one)),
        )

    def posterior(self) -> Sequence[float]:
        found = [1.0 / self._count] * self._count
        for cause, share in zip(self._causes, self._shares, strict=True):
            for one in bits(cause.members):
                found[one] = share / cause.members.bit_count()
        return found

    def answer(self) -> Answer:
        posterior, states = self.posterior(), self._runnable()
        best = 0
        for first in heapq.nlargest(LOOKED_AT, range(self._count), key=posterior.__getitem__):
            group = self._full
            for state in states:
                group &= state if state >> first & 1 else ~state
            best = max(best, group, key=self._held)
        sure = self._held(best)
        suspects = tuple(sorted(bits(best), key=lambda one: -posterior[one]))
        if sure < SURE:
            return Answer(
                suspects, sure, reason=f"after {len(self._launched)} launches none is sure"
            )
        return Answer(suspects, sure, True, hidden_by(best, self._skipped))

    def _runnable(self) -> list[State]:
        """Return the candidates: those that are offered, and those that ran already."""
        likely = sum(1 << one for one, share in enumerate(self.posterior()) if share > RARE)
        never = {0, self._full, *self._skipped}
        offered = dict.fromkeys([*self._states(likely), *self._launched])
        return [state for state in offered if state not in never]

    def _held(self, state: State) -> float:
        """Return the probability that a state holds the culprit."""
        held = [
            (cause.members & state).bit_count() / max(1, cause.members.bit_count())
            for cause in self._causes
        ]
        return math.fsum(map(operator.mul, self._shares, held))


def learn(known: Known, noise: Noise, bad: bool, value: float, trust: float) -> tuple[Known, float]:
    """Return what is known after a launch, and the logarithm of its density.

    `trust` is the share of a fresh launch's information that this one has.
    """
    logs, parts = [], []
    for share, shift, more, move in KINDS:
        level_var = known.level_var + noise.walk**2 + move
        # Covariances of level and effect with the value.
        level_cov = level_var + bad * known.covariance
        effect_cov = known.covariance + bad * known.effect_var
        value_var = level_cov + bad * effect_cov + (noise.sd**2 + more) / trust
        off = (value - shift - known.level - bad * known.effect) / value_var
        logs.append(share - 0.5 * (math.log(math.tau * value_var) + off * off * value_var))
        parts.append(
            Known(
                known.level + level_cov * off,
                known.effect + effect_cov * off,
                level_var - level_cov**2 / value_var,
                known.covariance - level_cov * effect_cov / value_var,
                known.effect_var - effect_cov**2 / value_var,
            )
        )
    fit = log_sum(logs)
    weights = [math.exp(log - fit) for log in logs]
    level = sum(w * part.level for w, part in zip(weights, parts, strict=True))
    effect = sum(w * part.effect for w, part in zip(weights, parts, strict=True))
    level_var = covariance = effect_var = 0.0
    for weight, part in zip(weights, parts, strict=True):
        by_level, by_effect = part.level - level, part.effect - effect
        level_var += weight * (part.level_var + by_level**2)
        covariance += weight * (part.covariance + by_level * by_effect)
        effect_var += weight * (part.effect_var + by_effect**2)
    return Known(level, effect, level_var, covariance, effect_var), fit


def log_sum(logs: Sequence[float]) -> float:
    """Return the logarithm of the sum of exponentials."""
    most = max(logs)
    return most + math.log(sum(math.exp(value - most) for value in logs))
