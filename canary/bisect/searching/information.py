"""How much a launch is expected to tell, and how many launches a search needs."""

from __future__ import annotations

import math
from collections.abc import Sequence

LEVEL = 0.99
"""Probability at which a suspect is the answer of a noisy search."""
ENDS_SHARE = 0.25
"""At least this share of the launches of a noisy search are ends."""


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
