"""What may explain the launches so far: a suspect or no change, with each belief of the noise.

Suspects that the same runs held cannot be distinguished by them. They stay one *class* and share
one recursion until a run divides them, so a thousand suspects cost as little as ten.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from canary.bisect.model import State
from canary.bisect.searching.information import told_by
from canary.bisect.searching.level import Known, Noise, after, start
from canary.bisect.searching.states import Masses, bits
from canary.compare.timing.estimate import Spread

NO_CHANGE = 0.1
"""Probability that the ends do not differ at all, before anything ran."""
WALKS = ((0.02, 0.45), (0.2, 0.35), (0.6, 0.2))
"""Moves of the level between two launches as a share of the noise, and their probabilities."""
MEASURED_STEPS = tuple(1.3**power for power in range(-4, 6))
UNKNOWN_SDS = tuple(0.003 * 1.45**power for power in range(13))
LEAST_SD = 0.002
MOST_TRUST = 10.0
"""Degrees of freedom at most of a spread of another day."""
LEAST_PART = 1e-4
"""Less probable explanations do not count in what a launch is expected to tell."""
FORGET = 1e-4
"""A belief of the noise below this probability is dropped."""


@dataclass(slots=True)
class Class:
    """Suspects that no run divided, with what each belief of the noise knows."""

    members: State
    """No suspects: nothing changed."""
    known: list[tuple[Known, ...]]
    fit: list[float]
    """Logarithm of the launches' probability by belief."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a class expects of the next launch: mean and variance if its state is good or bad."""

    members: State
    share: float
    """Probability of the class."""
    good: tuple[float, float]
    bad: tuple[float, float]


class Outlook:
    """What the next launch may show."""

    def __init__(self, expected: Sequence[Expected], masses: Masses) -> None:
        self._expected = [(each, masses.of(each.members)) for each in expected]
        self._masses = masses

    def told_by(self, state: State) -> float:
        """Return how many nats a launch of a state is expected to tell about the suspects."""
        parts = []
        for each, whole in self._expected:
            held = self._masses.of(each.members & state) / whole if whole else 0.0
            for part, (mean, variance) in ((held, each.bad), (1.0 - held, each.good)):
                if each.share * part > LEAST_PART:
                    parts.append((each.share * part, mean, variance))
        return told_by(parts)


class Explanations:
    """The posterior over suspects, no change and the machine's noise."""

    def __init__(self, weights: Sequence[float], spread: Spread | None) -> None:
        self._weights = [(1.0 - NO_CHANGE) * weight for weight in weights]
        self._masses = Masses(self._weights)
        self._beliefs = list(_beliefs(spread))
        count = len(self._beliefs)
        self._classes = [
            Class(members, [()] * count, [0.0] * count) for members in (0, (1 << len(weights)) - 1)
        ]
        self._launches = 0

    def launched(self, state: State, value: float) -> None:
        """Take the value of one launch of a state."""
        self._divide(state)
        if not self._launches:
            for each in self._classes:
                each.known = [start(value)] * len(self._beliefs)
        self._launches += 1
        for each in self._classes:
            bad = bool(each.members & state)
            for i, (_, noise) in enumerate(self._beliefs):
                each.known[i], fit = after(each.known[i], noise, bad, value)
                each.fit[i] += fit
        self._forget()

    def certain(self, state: State, bad: bool) -> bool:
        """Take that a state is bad or good for sure; return whether anything explains that."""
        self._divide(state)
        self._classes = [each for each in self._classes if bool(each.members & state) == bad]
        return bool(self._classes)

    def shares(self) -> list[tuple[Class, float]]:
        """Return each class with its probability."""
        totals = [self._total(each) for each in self._classes]
        most = max(totals)
        weights = [math.exp(total - most) for total in totals]
        total = sum(weights)
        return [(each, w / total) for each, w in zip(self._classes, weights, strict=True)]

    def mixture(self, each: Class) -> Iterator[tuple[float, Noise, Known]]:
        """Yield what a class knows, with probabilities that add up to 1."""
        logs = self._logs(each)
        most = max(logs)
        weights = [math.exp(value - most) for value in logs]
        total = sum(weights)
        for weight, (_, noise), known in zip(weights, self._beliefs, each.known, strict=True):
            for one in known:
                yield weight / total * one.weight, noise, one

    def suspects(self) -> list[float]:
        """Return the probability of each suspect; the rest of 1 is that nothing changed."""
        found = [0.0] * len(self._weights)
        for each, share in self.shares():
            whole = self._masses.of(each.members)
            for i in bits(each.members):
                found[i] = share * self._weights[i] / whole
        return found

    def no_change(self) -> float:
        """Return the probability that the ends do not differ."""
        return math.fsum(share for each, share in self.shares() if not each.members)

    def effect(self) -> tuple[float, float]:
        """Return mean and standard deviation of the change, if there is one."""
        parts = [
            (share * weight, known.effect, known.effect_var)
            for each, share in self.shares()
            if each.members
            for weight, _, known in self.mixture(each)
        ]
        mean, variance = _moments(parts)
        return mean, math.sqrt(variance)

    def noise_sd(self) -> float:
        """Return the expected standard deviation of a launch."""
        return math.fsum(
            share * weight * noise.sd
            for each, share in self.shares()
            for weight, noise, _ in self.mixture(each)
        )

    def outlook(self) -> Outlook:
        """Return what the next launch may show."""
        expected = []
        for each, share in self.shares():
            if share > LEAST_PART:
                known = list(self.mixture(each))
                good, bad = (_moments([_shown(one, bad) for one in known]) for bad in (False, True))
                expected.append(Expected(each.members, share, good, bad))
        return Outlook(expected, self._masses)

    def _logs(self, each: Class) -> list[float]:
        return [fit + prior for fit, (prior, _) in zip(each.fit, self._beliefs, strict=True)]

    def _total(self, each: Class) -> float:
        before = self._masses.of(each.members) if each.members else NO_CHANGE
        logs = self._logs(each)
        most = max(logs)
        return math.log(before) + most + math.log(sum(math.exp(value - most) for value in logs))

    def _divide(self, state: State) -> None:
        divided = []
        for each in self._classes:
            inside, outside = each.members & state, each.members & ~state
            if inside and outside:
                divided.append(Class(outside, list(each.known), list(each.fit)))
                each.members = inside
            divided.append(each)
        self._classes = divided

    def _forget(self) -> None:
        """Drop beliefs of the noise that no class needs."""
        shares = [0.0] * len(self._beliefs)
        for each, share in self.shares():
            logs = self._logs(each)
            most = max(logs)
            weights = [math.exp(value - most) for value in logs]
            total = sum(weights)
            for i, weight in enumerate(weights):
                shares[i] += share * weight / total
        kept = [i for i, share in enumerate(shares) if share > FORGET]
        self._beliefs = [self._beliefs[i] for i in kept]
        for each in self._classes:
            each.known = [each.known[i] for i in kept]
            each.fit = [each.fit[i] for i in kept]


def _beliefs(spread: Spread | None) -> Iterator[tuple[float, Noise]]:
    """Yield beliefs with the logarithm of their probability; `spread` is of one launch."""
    if spread is None:
        sds = [(sd, 1.0) for sd in UNKNOWN_SDS]
    else:
        trust = min(spread.df, MOST_TRUST)
        measured = max(spread.sd, LEAST_SD)
        sds = [
            (measured * step, math.exp(-trust * (math.log(step) + 0.5 / step**2)))
            for step in MEASURED_STEPS
        ]
    total = sum(weight for _, weight in sds)
    for sd, weight in sds:
        for walk, chance in WALKS:
            yield math.log(weight / total * chance), Noise(max(sd, LEAST_SD), walk * sd)


def _shown(one: tuple[float, Noise, Known], bad: bool) -> tuple[float, float, float]:
    weight, noise, known = one
    mean, variance = known.predict(bad)
    return weight, mean, variance + noise.sd**2 + noise.walk_sd**2


def _moments(parts: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Return mean and variance of a mixture of (weight, mean, variance)."""
    total = math.fsum(weight for weight, _, _ in parts)
    if total <= 0.0:
        return 0.0, 0.0
    mean = math.fsum(weight * each for weight, each, _ in parts) / total
    variance = math.fsum(w * (own + (each - mean) ** 2) for w, each, own in parts) / total
    return mean, variance
