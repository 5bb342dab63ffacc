"""A signal of the exact lane as a row of the table `SIGNALS`, and the usual ways to compare one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeGuard, TypeVar

from canary.compare.diagnosis.suspects import RegressionCategory
from canary.compare.exact.tolerances import Tolerance, relative_difference, tolerance_for
from canary.compare.report import Difference
from canary.record.exact import Exact
from canary.record.jsonio import shown
from canary.record.types import RunRecord

T = TypeVar("T")
EVERY_KEY = "*"
"""The name of a row whose signals are the keys of what it reads."""


@dataclass(frozen=True)
class Sides:
    """Two records whose signals are compared."""

    baseline: RunRecord
    current: RunRecord

    @property
    def tolerance(self) -> Tolerance:
        """How far arithmetic alone may move a signal."""
        return tolerance_for(self.current)

    def read(self, read: Callable[[Exact], T]) -> tuple[T, T]:
        """What both hold in one place."""
        return read(self.baseline.exact), read(self.current.exact)


@dataclass(frozen=True)
class Signal:
    """A signal of what is learned."""

    stage: str
    name: str
    read: Callable[[Exact], object]
    """Where the record has it."""
    compare: Callable[[Signal, Sides], list[Difference]]
    means: str
    """What it shows: the X of "X differs"."""
    points_to: RegressionCategory | None = None
    """The cause that a difference tells for; None where a file of `canary.compare.causes` asks for
    the signal, and for what else differs."""

    def differs(self, was: Any, now: Any, detail: str, **more: Any) -> Difference:
        """Its difference; `more` are further fields."""
        return Difference(self.stage, self.name, was, now, detail=detail, learned=True, **more)


def number(
    tolerance: Callable[[Tolerance], float], floor: Callable[[RunRecord], float] = lambda _: 0.0
) -> Callable[[Signal, Sides], list[Difference]]:
    """Compares one number, within a tolerance, on a scale of at least `floor` of the current side.
    What one side alone has recorded is of another version."""

    def compare(signal: Signal, sides: Sides) -> list[Difference]:
        was, now = sides.read(signal.read)
        least = floor(sides.current)
        if was is None or now is None:
            return []
        if relative_difference(was, now, least) <= tolerance(sides.tolerance):
            return []
        return [number_difference(signal, was, now, least)]

    return compare


def equal(signal: Signal, sides: Sides) -> list[Difference]:
    """Compares a hash, a name or a count, which are equal or not. What one side alone has recorded
    is of another version."""
    was, now = sides.read(signal.read)
    if was is None or now is None or was == now:
        return []
    return [signal.differs(was, now, f"{signal.name.replace('_', ' ')} {was} -> {now}")]


def number_difference(signal: Signal, was: Any, now: Any, floor: float) -> Difference:
    """Of numbers that are compared on a scale of at least `floor`."""
    relative, scale = of_baseline(was, now, floor)
    size = f"{relative:.1e} {scale or 'relative'}" if math.isfinite(relative) else "not finite"
    size = "missing on one side" if was is None or now is None else size
    detail = f"{signal.name} {show(was)} -> {show(now)} ({size})"
    return signal.differs(was, now, detail, relative=relative, scale=scale)


def is_finite(value: object) -> TypeGuard[float]:
    """Whether it is a number, and one that can be computed with."""
    return isinstance(value, int | float) and math.isfinite(value)


def show(value: object) -> str:
    """A number as a sentence holds it."""
    return shown(f"{value:.6g}" if isinstance(value, int | float) else str(value))


def of_baseline(was: object, now: object, floor: float = 0.0) -> tuple[float, str]:
    """(a difference as a share of the baseline, ""); where the baseline is below `floor`, the
    difference on that scale, and the scale in words. What is decided by is `relative_difference`.
    """
    if not (is_finite(was) and is_finite(now)):
        return relative_difference(was, now, floor), ""
    own = floor == 1.0 and abs(now) > 1.0  # see `loss_floor`: a loss above 1 has its own scale
    if abs(was) < floor and not own:
        return abs(now - was) / floor, f"on a scale of {floor:.3g}"
    return (abs(now - was) / abs(was) if was else 1.0), ""
