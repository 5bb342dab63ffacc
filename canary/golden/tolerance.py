"""How far a value may be from its golden value: exact, units in the last place, or a distance.

A unit in the last place (ulp) is one of float32 if no dtype is named. Trainers compute losses in
float32 or below, and a sum of float32 losses lies between two float32 numbers. So distances in ulp
are not whole there.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from canary.errors import UsageError

Kind = Literal["exact", "ulp", "absolute", "percent"]

DTYPES = {
    "float64": (52, -1022),
    "float32": (23, -126),
    "float16": (10, -14),
    "bfloat16": (7, -126),
}
"""Dtype -> (bits of the fraction, smallest normal exponent), from IEEE 754 and bfloat16."""
DEFAULT_DTYPE = "float32"
GRAMMAR = "use exact, 3ulp, 3ulp:bfloat16, 1e-3 or 5%, and ,mean=1e-5 behind it for the mean"

_ULP = re.compile(r"(\d{1,9})ulps?(?::(\w+))?")


@dataclass(frozen=True)
class Tolerance:
    """The largest distance that still counts as equal."""

    kind: Kind = "exact"
    size: float = 0.0
    """In ulp, in the metric's unit, or in percent of the golden value."""
    dtype: str = DEFAULT_DTYPE
    """The dtype of an ulp."""
    mean: float | None = None
    """Largest absolute mean of the signed differences over all steps, in the metric's unit."""

    def __str__(self) -> str:
        each = {
            "exact": "exact",
            "ulp": f"{self.size:.0f}ulp",
            "absolute": f"{self.size:g}",
            "percent": f"{self.size:g}%",
        }[self.kind]
        if self.kind == "ulp" and self.dtype != DEFAULT_DTYPE:
            each += f":{self.dtype}"
        return each if self.mean is None else f"{each},mean={self.mean:g}"

    def distance(self, golden: float, value: float) -> float:
        """Return the distance in the tolerance's unit; infinite if a value is not finite."""
        if not (math.isfinite(golden) and math.isfinite(value)):
            return math.inf
        if self.kind == "ulp":
            return abs(place(value, self.dtype) - place(golden, self.dtype))
        if self.kind == "percent":
            return percent(golden, value)
        return abs(value - golden)

    def allows(self, golden: float, value: float) -> bool:
        """Return whether the value is near enough."""
        return self.distance(golden, value) <= self.size

    def width(self, golden: float) -> float:
        """Return the largest allowed distance from a golden value in the metric's unit."""
        if self.kind == "ulp":
            fraction, least = DTYPES[self.dtype]
            return math.ldexp(self.size, max(math.frexp(golden)[1] - 1, least) - fraction)
        return abs(golden) * self.size / 100 if self.kind == "percent" else self.size

    def words(self, distance: float) -> str:
        """Return a distance with its unit."""
        if self.kind == "ulp":
            return ulp_words(distance)
        return f"{distance:.3g}%" if self.kind == "percent" else f"{distance:.3g}"

    def drift(self, differences: Sequence[float]) -> float | None:
        """Return the mean of the differences if it is beyond its limit."""
        if self.mean is None or not differences:
            return None
        found = math.fsum(differences) / len(differences)
        return found if abs(found) > self.mean else None


EXACT = Tolerance()
WHOLE_FROM = 1_000
"""Ulps from which fractions are not shown."""


def ulp_words(distance: float) -> str:
    """Return a distance in ulp with its unit; a large one as a whole number."""
    return f"{distance:,.0f} ulp" if distance >= WHOLE_FROM else f"{distance:.6g} ulp"


def place(value: float, dtype: str = DEFAULT_DTYPE) -> float:
    """Return the position of a number among the dtype's numbers: neighbours differ by 1.

    It is the number's bit pattern read as an integer, continued between two neighbours.
    """
    fraction, least = DTYPES[dtype]
    size = abs(value)
    if dtype == "float64":
        # An int: a float has no room for such positions.
        bits = int(struct.unpack("<q", struct.pack("<d", size))[0])
        return -bits if value < 0 else bits
    if size == 0.0:
        return 0.0
    exponent = max(math.frexp(size)[1] - 1, least)
    found = math.ldexp(exponent - least + math.ldexp(size, -exponent), fraction)
    return math.copysign(found, value)


def percent(golden: float, value: float) -> float:
    """Return the distance in percent of the golden value; infinite from 0."""
    if golden == value:
        return 0.0
    return 100 * abs(value - golden) / abs(golden) if golden else math.inf


def parse_tolerance(text: str) -> Tolerance:
    """Read a tolerance as `Tolerance.__str__` writes it.

    Raises:
        UsageError: it is none.
    """
    each, comma, rest = text.strip().partition(",")
    found = _each(each.strip())
    mean = _size(rest.strip().removeprefix("mean=")) if comma else None
    if found is None or (comma and (mean is None or not rest.strip().startswith("mean="))):
        raise UsageError(f"{text!r} is no tolerance", GRAMMAR)
    return Tolerance(found.kind, found.size, found.dtype, mean)


def _each(text: str) -> Tolerance | None:
    if text == "exact":
        return EXACT
    if ulps := _ULP.fullmatch(text):
        dtype = ulps[2] or DEFAULT_DTYPE
        return Tolerance("ulp", float(ulps[1]), dtype) if dtype in DTYPES else None
    size = _size(text.removesuffix("%"))
    if size is None:
        return None
    return Tolerance("percent" if text.endswith("%") else "absolute", size)


def _size(text: str) -> float | None:
    """Return a finite number from 0 on."""
    try:
        size = float(text)
    except ValueError:
        return None
    return size if math.isfinite(size) and size >= 0 else None


def tolerances_of(texts: Sequence[str]) -> dict[str, Tolerance]:
    """Read `NAME=TOLERANCE` options.

    Raises:
        UsageError: an option has no name, or no tolerance.
    """
    found = {}
    for text in texts:
        name, equals, size = _named(text)
        if not equals or not name:
            raise UsageError(f"--tolerance {text!r} names no metric", "write --tolerance loss=5%")
        found[name] = parse_tolerance(size)
    return found


def limits_of(texts: Sequence[str]) -> dict[str, Tolerance]:
    """Read `NAME=PERCENT` options.

    Raises:
        UsageError: an option has no name, or no percentage.
    """
    found = {}
    for text in texts:
        name, equals, size = (part.strip() for part in text.rpartition("="))
        limit = _each(size) if equals and name else None
        if limit is None or limit.kind != "percent":
            raise UsageError(f"--limit {text!r} is no percentage", "write --limit loss=2%")
        found[name] = limit
    return found


def _named(text: str) -> tuple[str, str, str]:
    """Split at the last equals sign that does not belong to `,mean=`."""
    head, comma, mean = text.rpartition(",mean=")
    name, equals, size = (head if comma else text).rpartition("=")
    return name.strip(), equals, size + comma + (mean if comma else "")
