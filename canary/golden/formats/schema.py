"""What a schema of golden files has to say: names, tolerances, reading and writing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from canary.golden.model import TIMES, Golden, GoldenMetric, Series, Statistic
from canary.golden.tolerance import EXACT, Tolerance
from canary.record.jsonio import MOST_DIGITS

OF_TIMES = Tolerance("percent", 5.0)
OF_MEMORY = Tolerance("percent", 5.0)
MEMORY = ("max_memory_bytes", "memory_bytes")


class NotThis(ValueError):
    """A document does not follow its schema; the text says where."""


@dataclass(frozen=True)
class Schema:
    """One schema. A tag is the file's name for a metric."""

    name: str
    project: str
    """Repository and commit in which the schema was read; empty for the canary's."""
    recognizes: Callable[[Any], bool]
    """Whether a JSON object is of this schema."""
    read: Callable[[Any], Golden]
    """Takes the JSON object, or the text of a file that is no JSON. Raises NotThis."""
    write: Callable[[Golden], str]
    tags: Mapping[str, str] = field(default_factory=dict)
    """The canary's name -> the tag."""
    metrics: tuple[str, ...] = ("loss", "grad_norm")
    """Written if a user names none, and the run has them."""
    required: tuple[str, ...] = ()
    """The project's reader needs them."""
    only: bool = False
    """Whether the schema can hold no other metrics."""
    decimals: int | None = None
    single: bool = False
    """Whether values are float32 numbers."""
    any_tolerance: bool = False
    """Whether the file keeps tolerances."""
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    """By tag."""

    def tolerance(self, tag: str, name: str) -> Tolerance:
        """Return the default tolerance of a metric."""
        if tag in self.tolerances:
            return self.tolerances[tag]
        if name in TIMES:
            return OF_TIMES
        return OF_MEMORY if name in MEMORY else EXACT


def statistic_of(name: str) -> Statistic:
    """Return how a metric is compared."""
    return "median" if name in TIMES else "step"


def step_number(text: object) -> int:
    """Return a step from a key.

    Raises:
        NotThis: it is no whole number.
    """
    found = str(text)
    if not (found.isascii() and found.isdigit() and len(found) < 16):
        raise NotThis(f"the step {found[:40]!r} is no whole number")
    return int(found)


def finite_number(value: object, where: str) -> float:
    """Return a value as a float.

    Raises:
        NotThis: it is no finite number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NotThis(f"{where[:200]} is no number")
    try:
        found = float(value)
    except OverflowError as error:
        raise NotThis(f"{where[:200]} has more than {MOST_DIGITS} digits") from error
    if not math.isfinite(found):
        raise NotThis(f"{where[:200]} is {found}")
    return found


def rising(values: Mapping[int, float], where: str) -> Series:
    """Return a series in the order of its steps.

    Raises:
        NotThis: it has no value.
    """
    if not values:
        raise NotThis(f"{where[:200]} holds no values")
    steps = sorted(values)
    return Series(tuple(steps), tuple(values[step] for step in steps))


def by_step(document: object, where: str) -> Series:
    """Return the series of `{step: value}`.

    Raises:
        NotThis: it is none.
    """
    if not isinstance(document, Mapping):
        raise NotThis(f"{where[:200]} is no mapping of steps")
    found = {
        step_number(key): finite_number(value, f"{where} at step {key}")
        for key, value in document.items()
    }
    if len(found) != len(document):
        raise NotThis(f"{where[:200]} has a step twice")
    return rising(found, where)


def plain(series: Series, tolerance: Tolerance) -> GoldenMetric:
    """Return a metric that is compared at every step."""
    return GoldenMetric(series, tolerance)
