"""What a reader yields: the values that a program wrote at one moment, and what must be told."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from canary.errors import InputError, printable

MOST_TOLD = 100
"""Different sentences that are kept."""
LONGEST_SHOWN = 120
TEXT = "text"


class Entry(NamedTuple):
    """Values that were written together."""

    step: float | None
    """The format's own step; None if the row may name it among its values."""
    values: Mapping[str, float | None]
    """By the source's name; None where the source has a null."""
    time: float | None = None
    """When it was written, in seconds since the epoch."""
    part: int = 0
    """The file it comes from: times of two files are of two processes."""
    run: str = ""
    """The run that the source names, if it holds several side by side."""
    line: int | None = None
    """Its line in the file, counted from 1."""
    group: str = ""
    """What a column such as `run`, `seed` or `rank` says of the row."""
    texts: Mapping[str, str] = MappingProxyType({})
    """What it has that is no number, by name."""


def plain(name: str) -> str:
    """Return a name without case: `Global Step` and `global-step` are `global_step`."""
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def shortened(text: object) -> str:
    """Return a stranger's text for a sentence: one line, at most 120 characters."""
    shown = printable(str(text))
    return shown if len(shown) <= LONGEST_SHOWN else f"{shown[: LONGEST_SHOWN - 3]}..."


def counted(count: int, one: str, many: str) -> str:
    """Return a number and what it counts."""
    return f"{count:,} {one if count == 1 else many}"


def place_of(file: str, line: int | None) -> str:
    """Return a file and the line in it, if it is known."""
    return shortened(file if line is None else f"{file}:{line}")


def no_step(name: str, text: str, file: str, line: int | None) -> InputError:
    """Return the error of a step that is no number."""
    return InputError(
        f"{place_of(file, line)}: the step `{shortened(name)}` is {shortened(text)}, not a number",
        "write steps as whole numbers",
    )


@dataclass
class Telling:
    """Collects what must be told of the source. Equal sentences about one file are counted."""

    _told: dict[tuple[str, str], tuple[int | None, int]] = field(default_factory=dict)
    """File and words -> the first line, counted from 1, and how often."""
    _more: int = 0
    failed: str | None = None
    """Why the training failed, if the source says it."""

    def tell(self, what: str, file: str = "", line: int | None = None, count: int = 1) -> None:
        """Tell something, or count it if it was told before."""
        first, before = self._told.get((file, what), (line, 0))
        if before or len(self._told) < MOST_TOLD:
            self._told[file, what] = (first, before + count)
        else:
            self._more += 1

    def fail(self, why: str | None) -> None:
        """Tell why the training failed. None: the source does not say so."""
        self.failed = why
        if why is not None:
            self.tell(f"the training failed: {why}")

    def sentences(self) -> list[str]:
        """Return all that was told, in order."""
        found = []
        for (file, what), (line, count) in self._told.items():
            place = place_of(file, line)
            more = f" ({count:,} times)" if count > 1 else ""
            found.append(f"{place}: {what}{more}" if place else f"{what}{more}")
        return [*found, f"{self._more:,} more remarks"] if self._more else found


def number_in(text: str) -> float | None:
    """Return the number that a text is, such as `NaN`, or None. Python's `1_000` is none here."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def as_value(value: Any) -> float | None:
    """Return a value of a document as a number. Raises TypeError if it is none."""
    if value is None:
        return None
    if isinstance(value, bool):
        raise TypeError("a yes or no")
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if isinstance(value, str):
        if (found := number_in(value)) is None:
            raise TypeError(TEXT)
        return found
    raise TypeError("a list" if isinstance(value, list) else "no number")
