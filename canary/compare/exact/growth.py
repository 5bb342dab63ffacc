"""How a count grows over the steps of a launch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from canary.record.exact import LiveMemory


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


def held_bytes(memory: LiveMemory, settled_step: int) -> float | None:
    """Bytes alive between two steps, those from before the training among them; None where a probe
    did not count them, or had too few steps."""
    steps = memory.get("live_bytes", [])[settled_step - 1 :]
    start = memory.get("start_bytes")
    return None if start is None or not steps else start + float(median(steps))
