"""What may explain the launches so far: a suspect or no change, with each belief of the noise.

Suspects that the same runs held cannot be distinguished by them. They stay one *class* and share
one recursion until a run divides them, so a thousand suspects cost as little as ten.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from canary.bisect.model import State
from canary.bisect.searching.level import Fit, Known, Noise, after, log_sum, start
from canary.bisect.searching.states import Masses, bits
from canary.compare.timing.estimate import Spread

LEVEL = 0.99
"""Probability at which a suspect is the answer of a noisy search."""
ENDS_SHARE = 0.25
"""At least this share of the launches of a noisy search are ends."""

NO_CHANGE = 0.1
"""Probability that the ends do not differ at all, before anything ran."""
WALKS = ((0.02, 0.45), (0.2, 0.35), (0.6, 0.2))
"""Moves of the level between two launches as a share of the noise, and their probabilities."""
MEASURED_STEPS = tuple(1.3**power for power in range(-4, 9))
UNKNOWN_SDS = tuple(0.003 * 1.45**power for power in range(18))
LEAST_SD = 0.002
OWN_SHARE = 0.25
"""Each state may differ by itself, by this share of the least change of interest (one sd)."""
MOST_TRUST = 10.0
"""Degrees of freedom at most of a spread of another day."""
LEAST_PART = 1e-4
"""Less probable explanations do not count in what a launch is expected to tell."""
FORGET = 3e-4
"""A belief of the noise below this probability is dropped."""


@dataclass(slots=True)
class Class:
    """Suspects that no run divided, with what each belief of the noise knows."""

    members: State
    """No suspects: nothing changed."""
    known: list[tuple[Known, ...]]
    fit: list[Fit]
    """How well the launches fit, by belief."""

    def copy(self, members: State) -> Class:
        """Return other suspects that know the same."""
        return Class(members, list(self.known), list(self.fit))


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

    def __init__(self, weights: Sequence[float], spread: Spread | None, effect: float) -> None:
        self._weights = [(1.0 - NO_CHANGE) * weight for weight in weights]
        self._masses = Masses(self._weights)
        self._beliefs = list(_beliefs(spread))
        self._own_sd = OWN_SHARE * effect
        self._classes = [
            Class(members, [start(0.0)] * len(self._beliefs), [Fit()] * len(self._beliefs))
            for members in (0, (1 << len(weights)) - 1)
        ]
        self._launches: dict[State, int] = {}
        self._share_out()

    def launched(self, state: State, value: float) -> None:
        """Take the value of one launch of a state."""
        self._divide(state)
        if not self._launches:
            for each in self._classes:
                each.known = [start(value)] * len(self._beliefs)
        self._launches[state] = self._launches.get(state, 0) + 1
        trusts = [self._trust(noise, self._launches[state]) for _, noise in self._beliefs]
        for each in self._classes:
            bad = bool(each.members & state)
            for i, ((_, noise), trust) in enumerate(zip(self._beliefs, trusts, strict=True)):
                each.known[i], fit = after(each.known[i], noise, bad, value, trust)
                before = each.fit[i]
                each.fit[i] = Fit(before.plain + fit.plain, before.trusted + fit.trusted)
        self._forget()
        self._share_out()

    def shares(self) -> list[tuple[Class, float]]:
        """Return each class with its probability."""
        return list(zip(self._classes, self._shares, strict=True))

    def mixture(self, index: int) -> Iterator[tuple[float, Noise, Known]]:
        """Yield what a class knows; the probabilities add up to that of the class."""
        each = self._classes[index]
        for chances, (_, noise), known in zip(
            self._chances, self._beliefs, each.known, strict=True
        ):
            for one in known:
                yield chances[index] * one.weight, noise, one

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
            (weight, known.effect, known.effect_var)
            for index, each in enumerate(self._classes)
            if each.members
            for weight, _, known in self.mixture(index)
        ]
        mean, variance = _moments(parts)
        return mean, math.sqrt(variance)

    def chance_above(self, change: float) -> float:
        """Return the probability that the effect exceeds a change, if there is one."""
        above = total = 0.0
        for index, each in enumerate(self._classes):
            if each.members:
                for weight, _, known in self.mixture(index):
                    normal = NormalDist(known.effect, math.sqrt(max(known.effect_var, 1e-12)))
                    above += weight * (1.0 - normal.cdf(change))
                    total += weight
        return above / total if total > 0.0 else 0.0

    def noise_sd(self) -> float:
        """Return the probable standard deviation of a launch: the mean of its logarithm."""
        logs = math.fsum(
            sum(chances) * math.log(noise.sd)
            for chances, (_, noise) in zip(self._chances, self._beliefs, strict=True)
        )
        return math.exp(logs)

    def outlook(self) -> Outlook:
        """Return what the next launch may show."""
        expected = []
        for index, (each, share) in enumerate(self.shares()):
            if share > LEAST_PART:
                known = list(self.mixture(index))
                good, bad = (_moments([_shown(one, bad) for one in known]) for bad in (False, True))
                expected.append(Expected(each.members, share, good, bad))
        return Outlook(expected, self._masses)

    def _trust(self, noise: Noise, number: int) -> float:
        """Return how much the n-th launch of a state tells, as a share of a fresh launch.

        The mean of n launches varies by own_sd^2 + sd^2 / n: repeats cannot tell the state's own
        difference from the culprit's.
        """
        own, one = self._own_sd**2, noise.sd**2
        return one * one / ((number * own + one) * ((number - 1) * own + one))

    def _share_out(self) -> None:
        """Compute the probability of each class, alone and with each belief.

        The plain fit chooses among beliefs. Within a belief, the trusted fit chooses among classes.
        """
        before = [
            math.log(self._masses.of(each.members) if each.members else NO_CHANGE)
            for each in self._classes
        ]
        plain, chances = [], []
        for i, (prior, _) in enumerate(self._beliefs):
            fits = [each.fit[i] for each in self._classes]
            plain.append(prior + log_sum([b + f.plain for b, f in zip(before, fits, strict=True)]))
            chances.append(_softmax([b + f.trusted for b, f in zip(before, fits, strict=True)]))
        self._chances = [
            [belief * chance for chance in each]
            for belief, each in zip(_softmax(plain), chances, strict=True)
        ]
        """Probability of each class with each belief."""
        self._shares = [math.fsum(column) for column in zip(*self._chances, strict=True)]

    def _divide(self, state: State) -> None:
        divided = []
        for each in self._classes:
            inside, outside = each.members & state, each.members & ~state
            if inside and outside:
                divided.append(each.copy(outside))
                each.members = inside
            divided.append(each)
        self._classes = divided

    def _forget(self) -> None:
        """Drop beliefs of the noise that are improbable."""
        self._share_out()
        kept = [i for i, chances in enumerate(self._chances) if sum(chances) > FORGET]
        self._beliefs = [self._beliefs[i] for i in kept]
        for each in self._classes:
            each.known = [each.known[i] for i in kept]
            each.fit = [each.fit[i] for i in kept]


def _softmax(logs: Sequence[float]) -> list[float]:
    total = log_sum(logs)
    return [math.exp(value - total) for value in logs]


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


def launches_needed(missing_bits: float, level: float, effect: float, sd: float) -> float:
    """Return about how many launches find one suspect.

    The missing bits come at the rate of a channel with two inputs. Then the suspect must be sure
    against its neighbours, each of which every second launch tests.

    Args:
        missing_bits: entropy of the suspects.
        level: probability at which the search ends.
        effect: the change, as a logarithm.
        sd: standard deviation of a launch's logarithm.
    """
    separation = (effect / sd) ** 2
    rate = told_by([(0.5, 0.0, 1.0), (0.5, math.sqrt(separation), 1.0)])
    surer = math.log(level / (1.0 - level)) / max(separation / 4.0, 1e-9)
    narrowed = missing_bits * math.log(2.0) / max(rate, 1e-9)
    return (narrowed + max(surer, 2.0)) / (1.0 - ENDS_SHARE)


def told_by(parts: Sequence[tuple[float, float, float]]) -> float:
    """Return how many nats a value tells about which part it is from: a lower bound.

    Each part is a normal distribution: its probability, mean and variance. The bound is that of
    Kolchinsky and Tracey, Entropy 19(7):361, 2017, with Bhattacharyya distances.
    """
    told = 0.0
    for weight, mean, variance in parts:
        like = 0.0
        for other_weight, other_mean, other_variance in parts:
            both = variance + other_variance
            off = other_mean - mean
            like += (
                other_weight
                * math.sqrt(2.0 * math.sqrt(variance * other_variance) / both)
                * math.exp(-0.25 * off * off / both)
            )
        told -= weight * math.log(like)
    return told
