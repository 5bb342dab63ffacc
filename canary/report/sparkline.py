"""Values in a few characters: `▃▃▄█`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise

BLOCKS = "▁▂▃▄▅▆▇█"
LEAST_RANGE = 0.1
"""Share of the median that the blocks span at least: noise must not look like mountains."""


def sparkline(values: Sequence[float]) -> str:
    """Return one block per value."""
    middle, low, high = statistics.median(values), min(values), max(values)
    span = max(high - low, LEAST_RANGE * abs(middle))
    if span == 0:
        return BLOCKS[len(BLOCKS) // 2] * len(values)
    bottom = (low + high - span) / 2
    places = (int(len(BLOCKS) * (value - bottom) / span) for value in values)
    return "".join(BLOCKS[min(place, len(BLOCKS) - 1)] for place in places)


NEWEST = 3
"""Values that are never thinned: the newest change waits there."""


def thinned(values: Sequence[float], most: int) -> list[float]:
    """Return at most `most` values: the newest, and before them medians of neighbours, of which no
    spike is left."""
    if len(values) <= most:
        return list(values)
    older, left = values[:-NEWEST], most - NEWEST
    ends = [round(number * len(older) / left) for number in range(left + 1)]
    medians = [statistics.median(older[first:end]) for first, end in pairwise(ends)]
    return [*medians, *values[-NEWEST:]]
