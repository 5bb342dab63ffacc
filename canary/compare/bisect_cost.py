"""How long `canary bisect` takes, by the launches that are recorded. Pure.

An exact signal, or a crash, halves the suspects with each probe. A noisy metric needs repeats: a
launch tells at most `1 - exp(-d**2 / 6)` bits, where `d` is the change in standard deviations of a
launch. That is the capacity of a binary channel with Gaussian noise, to 0.02 bits for `d` below 5.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from canary.record.types import Launch, RunRecord

ENDS = 2
"""Launches of an exact search that show both ends once."""
RIGHT = 0.95
"""Probability of the answer at which a noisy search ends."""
WASTE = 2.0
"""A noisy search runs both ends too, and does not always find the best state to run."""
LAST_PAIRS = 5
"""The last step compares the culprit with its parent in up to so many pairs."""
LEAST_NOISE = 0.005
"""Relative standard deviation of a launch; quieter ones are too few to know."""
MOST_BITS = 0.98
"""Of one launch: even a large change is shown twice before it is believed."""


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
        return math.ceil(bits) + ENDS
    size = abs(math.log1p(max(effect.change, -0.99))) / max(effect.noise, LEAST_NOISE)
    told = min(MOST_BITS, -math.expm1(-(size**2) / 6))
    if told <= 0:
        return 0
    needed = bits + math.log2(1 / (1 - RIGHT))
    return math.ceil(WASTE * needed / told) + 2 * LAST_PAIRS


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


def _seconds(launches: Iterator[Launch]) -> Iterator[float]:
    for launch in launches:
        if launch.wall_seconds is not None and 0 < launch.wall_seconds < math.inf:
            yield float(launch.wall_seconds)
