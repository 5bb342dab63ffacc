"""How well one explanation fits the launches: a Gaussian recursion that outliers cannot lead.

The logarithm of launch t is `level(t) + effect * bad(t) + noise(t)`. The level moves between two
launches: a little each time, and seldom far. The noise is normal, and seldom a launch is slow. So
each launch is plain, slow, or the first after a jump. For each of the three, what is known of
(level, effect) is a normal distribution. A launch later its three branches become one, with the
same moments. The method is GPB1 (Bar-Shalom, Li and Kirubarajan, Estimation with Applications to
Tracking and Navigation, 2001, 11.6).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

SLOW_SHARE, SLOW_MEAN, SLOW_SD = 0.05, 0.25, 0.2
"""One launch of twenty is 10 to 60% slow, or somewhat more."""
JUMP_SHARE, JUMP_SD = 0.02, 0.2
"""One launch of fifty finds a machine that is faster or slower for good."""
EFFECT_MEAN, EFFECT_SD = 0.2, 0.3
"""Of the change between the ends, before anything ran: a factor of 2 is likely, one of 3 is not."""
START_SD = 1.0
LEAST_WEIGHT = 0.01
"""What is less probable than that after a launch is not followed."""
PLAIN = math.log(1.0 - SLOW_SHARE - JUMP_SHARE)
SLOW, JUMP = math.log(SLOW_SHARE), math.log(JUMP_SHARE)
HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)


@dataclass(frozen=True, slots=True)
class Noise:
    """One belief about the machine, in logarithms."""

    sd: float
    """Of one launch."""
    walk_sd: float
    """Of the level's move between two launches."""


class Known(NamedTuple):
    """A normal distribution of (level, effect), and the probability of what led to it."""

    weight: float
    level: float
    effect: float
    level_var: float
    shared_var: float
    """Covariance of level and effect."""
    effect_var: float

    def predict(self, bad: bool) -> tuple[float, float]:
        """Return mean and variance of the next launch, without its noise."""
        if not bad:
            return self.level, self.level_var
        variance = self.level_var + 2.0 * self.shared_var + self.effect_var
        return self.level + self.effect, variance


def start(value: float) -> tuple[Known, ...]:
    """Return what is known before the first launch, which will have about this value."""
    return (Known(1.0, value, EFFECT_MEAN, START_SD**2, 0.0, EFFECT_SD**2),)


class Fit(NamedTuple):
    """Logarithms of the probability density of launches."""

    plain: float = 0.0
    trusted: float = 0.0
    """With the noise that counts for a repeated launch of one state."""


def after(
    known: Sequence[Known], noise: Noise, bad: bool, value: float, trust: float
) -> tuple[tuple[Known, ...], Fit]:
    """Return what is known after a launch, and how well the launch fits.

    `trust` is the share of a fresh launch's information that this one has. The three results are:
    it was a plain launch, a slow one, the first after a jump. Improbable ones are left out.
    """
    walk, plain = noise.walk_sd**2, noise.sd**2
    kinds = (
        (PLAIN, walk, plain, 0.0),
        (SLOW, walk, plain + SLOW_SD**2, SLOW_MEAN),
        (JUMP, walk + JUMP_SD**2, plain, 0.0),
    )
    branches = [
        [_one_after(each, bad, value - shift, moved, variance, trust, share) for each in known]
        for share, moved, variance, shift in kinds
    ]
    parts = [part for branch in branches for part in branch]
    most = max(part[0] for part in parts)
    joined = [_joined(branch, most) for branch in branches]
    total = sum(each.weight for each in joined)
    trusted = log_sum([part[1] for part in parts])
    kept = [each for each in joined if each.weight > LEAST_WEIGHT * total]
    scale = 1.0 / sum(each.weight for each in kept)
    left = tuple(Known(each.weight * scale, *each[1:]) for each in kept)
    return left, Fit(most + math.log(total), trusted)


_Part = tuple[float, float, float, float, float, float, float]


def _one_after(
    known: Known,
    bad: bool,
    value: float,
    moved: float,
    variance: float,
    trust: float,
    share: float,
) -> _Part:
    """Return a Kalman step: the logarithms of its two weights, then the fields of `Known`."""
    level_var, shared_var = known.level_var + moved, known.shared_var
    effect_var = known.effect_var
    if bad:
        level_gain, effect_gain = level_var + shared_var, shared_var + effect_var
        expected, before = known.level + known.effect, level_gain + effect_gain
    else:
        level_gain, effect_gain = level_var, shared_var
        expected, before = known.level, level_var
    off, plain, total = value - expected, before + variance, before + variance / trust
    weight = math.log(known.weight) + share - HALF_LOG_TAU
    return (
        weight - 0.5 * (math.log(plain) + off * off / plain),
        weight - 0.5 * (math.log(total) + off * off / total),
        known.level + level_gain * off / total,
        known.effect + effect_gain * off / total,
        level_var - level_gain * level_gain / total,
        shared_var - level_gain * effect_gain / total,
        effect_var - effect_gain * effect_gain / total,
    )


def log_sum(logs: Sequence[float]) -> float:
    most = max(logs)
    return most + math.log(sum(math.exp(value - most) for value in logs))


def _joined(parts: Sequence[_Part], most: float) -> Known:
    """Return one normal distribution with the moments of a mixture."""
    weights = [math.exp(part[0] - most) for part in parts]
    total = sum(weights)
    if total <= 0.0:
        return Known(0.0, *parts[0][2:])
    level = effect = level_var = shared_var = effect_var = 0.0
    for weight, part in zip(weights, parts, strict=True):
        level += weight * part[2]
        effect += weight * part[3]
    level, effect = level / total, effect / total
    for weight, part in zip(weights, parts, strict=True):
        by_level, by_effect = part[2] - level, part[3] - effect
        level_var += weight * (part[4] + by_level * by_level)
        shared_var += weight * (part[5] + by_level * by_effect)
        effect_var += weight * (part[6] + by_effect * by_effect)
    return Known(total, level, effect, level_var / total, shared_var / total, effect_var / total)
