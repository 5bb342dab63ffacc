"""Two records whose exact signals are compared, and how a difference of two values is told."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeGuard, TypeVar

from canary.compare.exact.tolerances import (
    TOLERANCES,
    Tolerance,
    begins_alike,
    relative_difference,
    tolerance_for,
)
from canary.compare.report import Difference
from canary.record.exact import Exact
from canary.record.jsonio import shown
from canary.record.types import RunRecord

T = TypeVar("T")


@dataclass(frozen=True)
class Sides:
    """Two records whose signals are compared."""

    baseline: RunRecord
    current: RunRecord
    allowed: Tolerance | None = None
    """Instead of that of the current record's dtype."""

    @cached_property
    def tolerance(self) -> Tolerance:
        """Return how far rounding alone may move a signal."""
        if self.allowed is None and begins_alike(self.baseline, self.current):
            return TOLERANCES["float32"]
        return self.allowed or tolerance_for(self.current)

    def read(self, read: Callable[[Exact], T]) -> tuple[T, T]:
        """Apply `read` to the exact signals of both sides."""
        return read(self.baseline.exact), read(self.current.exact)


def learned(stage: str, signal: str, was: Any, now: Any, words: str, **more: Any) -> Difference:
    """Return a difference of learning; `more`: further fields."""
    return Difference(stage, signal, was, now, detail=words, learned=True, **more)


def number_difference(
    stage: str, signal: str, was: Any, now: Any, floor: float, words: str
) -> Difference:
    """Return the difference of two numbers, on a scale of at least `floor`; `words`: their name."""
    relative, scale = of_baseline(was, now, floor)
    size = size_words(relative, scale) if math.isfinite(relative) else "not finite"
    size = "missing on one side" if was is None or now is None else size
    if size.endswith("%"):
        size = f"{'-' if now < was else '+'}{size}"
    detail = f"{words} {show(was)} -> {show(now)} ({size})"
    return learned(stage, signal, was, now, detail, relative=relative, scale=scale)


def size_words(relative: float, scale: str) -> str:
    """Return the size of a difference; in percent from 1% of the baseline on."""
    if scale or relative < 0.01:
        return f"{relative:.1e} {scale or 'relative'}"
    return f"{100 * relative:,.0f}%" if relative >= 1 else f"{100 * relative:.3g}%"


def is_finite(value: object) -> TypeGuard[float]:
    """Whether it is a finite number."""
    return isinstance(value, int | float) and math.isfinite(value)


def show(value: object) -> str:
    """Return a value as text for a sentence."""
    return shown(f"{value:.6g}" if isinstance(value, int | float) else str(value))


def of_baseline(was: object, now: object, floor: float = 0.0) -> tuple[float, str]:
    """Return (difference as a share of the baseline, ""), for messages only.

    If the baseline is below `floor`: (difference as a share of `floor`, the scale in words).
    `relative_difference` decides."""
    if not (is_finite(was) and is_finite(now)):
        return relative_difference(was, now, floor), ""
    large = floor == 1.0 and abs(now) > 1.0  # a policy loss above 1 needs no floor: `loss_floor`
    if abs(was) < floor and not large:
        return abs(now - was) / floor, f"on a scale of {floor:.3g}"
    return (abs(now - was) / abs(was) if was else 1.0), ""
