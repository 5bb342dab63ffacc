"""Tests on the numbers of a look, for the causes. Pure."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence

from canary.compare.exact.signal_kinds import is_finite
from canary.record.exact import Micro
from canary.record.types import RunRecord


def advantages_of(steps: Sequence[Sequence[Micro]]) -> list[float]:
    """Return the advantages of step 1; nan for missing values."""
    found = [value for micro in next(iter(steps), ()) for value in micro.get("advantages", [])]
    return [math.nan if value is None else value for value in found]


def common_factor(before: Mapping[str, float], after: Mapping[str, float]) -> float | None:
    """Return the factor that all groups' norms share; None if they share none, or it is 1."""
    pairs = [
        (before[name], after[name])
        for name in before
        if name in after and is_finite(before[name]) and is_finite(after[name])
    ]
    largest = max((was for was, _ in pairs), default=0.0)
    factors = [now / was for was, now in pairs if was > 1e-4 * largest]
    if not factors or min(factors) <= 0:
        return None
    middle = sorted(factors)[len(factors) // 2]
    same = all(abs(factor / middle - 1) < 1e-3 for factor in factors)
    return middle if same and abs(middle - 1) > 2e-3 else None


def rounded_to(record: RunRecord, dtype: str) -> bool:
    """Return whether the losses, or all values of a metric, are exact numbers of a narrow dtype."""
    trajectory = record.exact.get("trajectory", {})
    first = record.exact.get("first_loss", {}).get("micro_losses", [])
    series = [[*trajectory.get("losses", []), *first], *trajectory.get("rl", {}).values()]
    rows = _rows_per_step(record)
    return any(is_of_dtype(values, dtype) for values in series if not _are_shares(values, rows))


def _rows_per_step(record: RunRecord) -> int:
    """Return the sequences per step; 0 if steps have different numbers."""
    steps = record.exact.get("batches", [])
    counts = {sum(micro.get("sequences", 0) for micro in step) for step in steps}
    return counts.pop() if len(counts) == 1 else 0


def _are_shares(values: Sequence[float | None], rows: int) -> bool:
    """Return whether all values are counts over the rows of a step.

    Such values look rounded in any precision: a mean of 8 counts has three binary places.
    """
    numbers = (v * rows for v in values if is_finite(v))
    return bool(rows) and all(
        math.isfinite(v) and abs(v - round(v)) < 1e-6 * max(1.0, abs(v)) for v in numbers
    )


LEAST_VALUES = 6


def is_of_dtype(values: Sequence[float | None], dtype: str) -> bool:
    """Return whether enough different values exist and `bfloat16` or `float16` holds them all."""
    numbers = {v for v in values if is_finite(v) and v not in (0, 1, -1)}
    fractions = {v for v in numbers if v != round(v)}
    if len(fractions) < LEAST_VALUES:
        return False
    if dtype == "float16":
        return all(
            abs(v) < 65504 and struct.unpack("<e", struct.pack("<e", v))[0] == v for v in fractions
        )
    return all(
        struct.pack("<f", v)[:2] == b"\0\0" and struct.unpack("<f", struct.pack("<f", v))[0] == v
        for v in fractions
    )
