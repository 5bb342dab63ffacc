"""How a count grows over the steps of a launch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median


def slope(values: Sequence[float]) -> float:
    """Least-squares slope of equally spaced values, a step."""
    count = len(values)
    centre = (count - 1) / 2
    spread = sum((i - centre) ** 2 for i in range(count))
    return sum((i - centre) * value for i, value in enumerate(values)) / spread if spread else 0.0


def tensor_growth(counts: Sequence[float]) -> float:
    """Tensors a step that stay alive, 0 where they settle: the steady step and the trend, whichever
    is larger, so that neither one release in between nor a leak every few steps hides it."""
    steady = median(after - before for before, after in pairwise(counts))
    return max(0.0, steady, slope(counts))
