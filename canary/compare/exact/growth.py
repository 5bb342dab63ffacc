"""Growth of live tensors over the steps of a launch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from canary.record.exact import LiveMemory


def slope(values: Sequence[float]) -> float:
    """Return the least-squares slope per step of equally spaced values."""
    count = len(values)
    centre = (count - 1) / 2
    spread = sum((i - centre) ** 2 for i in range(count))
    return sum((i - centre) * value for i, value in enumerate(values)) / spread if spread else 0.0


def tensor_growth(counts: Sequence[float]) -> float:
    """Return how many tensors per step stay alive, 0 if the count settles.

    The larger of median and slope: a single release lowers only the slope, and the median misses
    a leak every few steps."""
    typical = median(after - before for before, after in pairwise(counts))
    return max(0.0, typical, slope(counts))


def held_bytes(memory: LiveMemory, settled_step: int) -> float | None:
    """Return the bytes alive between two steps, including those from before training.

    None if the probe did not count them or had too few steps."""
    steps = memory.get("live_bytes", [])[settled_step - 1 :]
    start = memory.get("start_bytes")
    return None if start is None or not steps else start + float(median(steps))
