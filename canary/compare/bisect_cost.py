"""How long `canary bisect` takes, by the launches that are recorded. Pure.

An exact signal, or a crash, halves the suspects with each probe. A noisy metric needs repeats.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from canary.record.types import Launch, RunRecord

ENDS_AND_LAST = 9
"""Launches of an exact search beside its probes: three pairs of the ends, three for the last step.
"""
LAST_PAIRS = 5
"""The last step compares the culprit with its parent in up to so many pairs."""
LEAST_NOISE = 1e-4
"""Relative standard deviation of a launch; quieter ones are too few to know."""
LEVEL = 0.99
"""Probability at which a suspect is the answer of a noisy search."""
ENDS_SHARE = 0.25
"""At least this share of the launches of a noisy search are ends."""
FIRST_LAUNCHES = 4
"""Of a noisy search: both ends twice."""


@dataclass(frozen=True)
class Effect:
    """A change of a noisy metric."""

    change: float
    """Relative, such as 0.1; its sign does not matter."""
    noise: float
    """Relative standard deviation of one launch."""


def expected_launches(suspects: int, effect: Effect | None = None) -> int:
    """Return how many launches a search among so many suspects takes.

    `effect`: of a noisy metric; None for an exact signal, a crash or a failed invariant.
    """
    bits = math.log2(max(1, suspects))
    if effect is None:
        return math.ceil(bits) + ENDS_AND_LAST
    change = abs(math.log1p(max(effect.change, -0.99)))
    needed = launches_needed(bits, LEVEL, change, max(effect.noise, LEAST_NOISE))
    return min(MOST_LAUNCHES, math.ceil(FIRST_LAUNCHES + needed) + 2 * LAST_PAIRS)


MOST_LAUNCHES = 1_000_000


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


def whole_launch_seconds(records: Sequence[RunRecord], *, probe: bool) -> float | None:
    """Return the typical seconds of a whole launch, start included; None if no record has one.

    `probe`: of the launches that collect exact signals; without any, of the measured ones.
    """
    every = [launch for record in records for launch in record.launches]
    kinds = ("probe", "measured") if probe else ("measured",)
    for kind in kinds:
        known = list(_seconds(launch for launch in every if launch.kind == kind))
        if known:
            return statistics.median(known)
    return None


def _seconds(launches: Iterable[Launch]) -> Iterator[float]:
    for launch in launches:
        if launch.wall_seconds is not None and 0 < launch.wall_seconds < math.inf:
            yield float(launch.wall_seconds)
