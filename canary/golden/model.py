"""What a golden file holds, whatever its schema. Pure data."""

from __future__ import annotations

import math
import statistics
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field

from canary.golden.tolerance import Tolerance
from canary.record.section import Number, Section
from canary.record.types import RunRecord

Statistic = Literal["step", "median"]
"""What is compared: the value at every step, or the median over the steps (of times)."""

TIMES = ("step_time_s", "tokens_per_sec", "tokens_per_sec_per_gpu")
"""Metrics that the clock gives: no run repeats them step by step, so the median counts."""


@dataclass(frozen=True)
class Series:
    """A metric over steps; the values are finite numbers in a golden file."""

    steps: tuple[int, ...] = ()
    values: tuple[float, ...] = ()

    def at(self) -> dict[int, float]:
        """Return the values by step."""
        return dict(zip(self.steps, self.values, strict=True))

    def median(self, window: range | None = None) -> float:
        """Return the median, of the window's steps if it has some; NaN without a value."""
        kept = [v for s, v in self.at().items() if window is None or s in window]
        return statistics.median(kept or self.values) if self.values else math.nan

    def not_finite(self) -> tuple[int, float] | None:
        """Return the first step whose value is not finite, and the value."""
        return next(((s, v) for s, v in self.at().items() if not math.isfinite(v)), None)


@dataclass(frozen=True)
class GoldenMetric:
    """One metric of a golden file."""

    series: Series
    tolerance: Tolerance
    statistic: Statistic = "step"
    window: range | None = None
    """Steps of the median; None: all."""
    interval: int = 1
    """Only the first step and multiples of this are in the file."""
    decimals: int | None = None
    """The file's values are rounded to so many decimals, and a run's are before they are compared.
    """
    single: bool = False
    """The file's values are float32 numbers, and a run's are rounded to these likewise."""
    numberless: tuple[int, ...] = ()
    """Steps at which the file says "nan"."""

    def rounded(self, value: float) -> float:
        """Return a run's value as the file would have it."""
        return as_filed(value, self.decimals, self.single)

    def asks_for(self, step: int) -> bool:
        """Return whether a file of this interval has the step."""
        if self.interval == 1:
            return True
        return step in self.series.steps[:1] or step % self.interval == 0


def as_filed(value: float, decimals: int | None, single: bool) -> float:
    """Return a value as a file has it, with so many decimals or as a float32."""
    if not math.isfinite(value):
        return value
    if single:
        try:
            return float(struct.unpack("<f", struct.pack("<f", value))[0])
        except OverflowError:
            return math.copysign(math.inf, value)
    return value if decimals is None else round(value, decimals)


class Moved(Section):
    """How far one metric moved in a refresh."""

    first_step: int | None = None
    steps: int
    largest: Number
    unit: str = ""
    """Of `largest`: `ulp`, `%` or empty for the metric's unit."""


class Entry(Section):
    """One refresh of a golden file, or its first writing."""

    date: str
    reason: str
    runs: list[str] = Field(default_factory=list)
    commit: str | None = None
    dirty: bool | None = None
    packages: dict[str, str] = Field(default_factory=dict)
    """The packages that changed: name -> `old -> new`."""
    moved: dict[str, Moved] = Field(default_factory=dict)
    accepted: str | None = None
    """Why a metric that got worse was accepted."""
    statistics: dict[str, dict[str, Number]] = Field(default_factory=dict)
    """Per metric what a later refresh is judged by, so that small steps for the worse add up."""


@dataclass(frozen=True)
class Golden:
    """A golden file."""

    schema: str
    metrics: Mapping[str, GoldenMetric]
    """By the file's name for the metric."""
    record: RunRecord | None = None
    """The record of the run behind the values, without its times; only in the canary's schema."""
    history: Sequence[Entry] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Further parts of the file that a refresh keeps."""
