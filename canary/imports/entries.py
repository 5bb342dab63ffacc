"""What a reader yields: the values that a program wrote at one moment, and what must be told."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NamedTuple

from canary.errors import InputError, printable
from canary.protocol.failure import last_words

MOST_TOLD = 100
"""Different sentences that are kept."""
LONGEST_SHOWN = 120
MOST_LISTED = 5


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
    line: int | None = None
    """Its line in the file, counted from 1."""
    texts: Mapping[str, str] = MappingProxyType({})
    """What it has that is no number, and what names its run, by name."""


def plain(name: str) -> str:
    """Return a name without case: `Global Step` and `global-step` are `global_step`."""
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def shortened(text: object) -> str:
    """Return a stranger's text for a sentence: one line, at most 120 characters."""
    shown = printable(str(text))
    return shown if len(shown) <= LONGEST_SHOWN else f"{shown[: LONGEST_SHOWN - 3]}..."


def listed(names: Sequence[str]) -> str:
    """Return a few names, and how many more there are."""
    shown = ", ".join(shortened(name) for name in names[:MOST_LISTED])
    more = len(names) - MOST_LISTED
    return f"{shown} and {more:,} more" if more > 0 else shown


def counted(count: int, one: str, many: str) -> str:
    """Return a number and what it counts."""
    return f"{count:,} {one if count == 1 else many}"


def place_of(file: str, line: int | None) -> str:
    """Return a file and the line in it, if it is known."""
    return shortened(file if line is None else f"{file}:{line}")


@dataclass
class Telling:
    """Collects what must be told of the source. Equal sentences about one file are counted."""

    _told: dict[tuple[str, str], tuple[int | None, int]] = field(default_factory=dict)
    """File and words -> the first line, counted from 1, and how often."""
    _more: int = 0
    failed: str | None = None
    """Why the training failed, if the source says it."""

    def tell(self, what: str, file: str = "", line: int | None = None) -> None:
        """Tell something, or count it if it was told before."""
        first, before = self._told.get((file, what), (line, 0))
        if before or len(self._told) < MOST_TOLD:
            self._told[file, what] = (first, before + 1)
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
            raise TypeError("text")
        return found
    raise TypeError("a list" if isinstance(value, list) else "no number")


TIME_NAMES = ("_timestamp", "timestamp", "time", "wall_time")
"""Fields that hold the time of a row in any case, if the value can be one."""
EARLIEST, LATEST = 946_684_800.0, 7_258_118_400.0
"""The years 2000 to 2200, in seconds since the epoch: other numbers are no time of a row."""
GROUP_NAMES = ("run", "run_name", "run_id", "experiment", "trial", "seed", "rank", "split")
"""Fields that tell rows of several runs apart, in any case: they are no metrics."""
DEEPEST = 20
"""Levels of objects in a row."""
LONGEST_TEXT = 200
"""Characters that are kept of what is no number."""


def unix_time(value: Any) -> float | None:
    """Return a value as seconds since the epoch, if it is a moment: a number or ISO 8601."""
    if isinstance(value, str) and number_in(value) is None:
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None
        value = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    try:
        found = as_value(value)
    except TypeError:
        return None
    return found if found is not None and EARLIEST <= found <= LATEST else None


def entry_of(row: Mapping[str, Any], telling: Telling, file: str, line: int | None = None) -> Entry:
    """Return a row's numbers. Objects in it are flattened: `{"a": {"b": 1}}` has `a/b`. Text,
    lists and yes-or-no values are told."""
    values: dict[str, float | None] = {}
    texts: dict[str, str] = {}
    time: float | None = None
    waiting = [("", row, 0)]
    while waiting:
        prefix, level, depth = waiting.pop()
        for key, value in level.items():
            name = f"{prefix}{key}"
            if isinstance(value, Mapping):
                if depth >= DEEPEST:
                    telling.tell(f"objects below {DEEPEST} levels were not read", file, line)
                else:
                    waiting.append((f"{name}/", value, depth + 1))
                continue
            kind = plain(name)
            if kind in GROUP_NAMES and value is not None:
                texts[name] = str(value)[:LONGEST_TEXT]
            elif kind in TIME_NAMES and (moment := unix_time(value)) is not None:
                time = moment if time is None else time
            else:
                try:
                    values[name] = as_value(value)
                except TypeError as error:
                    texts[name] = str(value)[:LONGEST_TEXT]
                    telling.tell(f"`{shortened(name)}` is {error}, not a number", file, line)
    return Entry(None, values, time, line=line, texts=texts)


def missing(what: str, package: str) -> InputError:
    """Return the error; `package` as pip names it."""
    return InputError(
        f"{what} need the package {package.split('>')[0]}, which is not installed",
        f"pip install {package}",
    )


TRACEBACK = "Traceback (most recent call last)"
IGNORED = "Exception ignored in"
"""Python prints it before the traceback of an error in a destructor, which ends nothing."""
DEATH = re.compile(
    r"out of memory|OutOfMemory|oom[-_ ]?kill|Segmentation fault|core dumped|std::bad_alloc|"
    r"(?:^|\d)\s*Killed\b|No space left on device|CANCELLED AT|"
    r"^\s*(?:Terminated|Aborted)\b|\bexit(?:ed with)? ?(?:code|status) [1-9]|"
    r"Watchdog caught collective|"
    r"\b(?:signal 9|SIGKILL|SIGSEGV|SIGABRT)\b|^[\w.]+(?:Error|Exception|Interrupt)(?:: |$)",
    re.IGNORECASE,
)
"""How launchers, kernels and libraries say that a process is dead."""
KEPT = 500
"""Lines behind the last metric."""


class Ending:
    """The lines behind the last metric so far."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=KEPT)

    def add(self, line: str) -> None:
        """Add a line without a metric."""
        self._lines.append(line)

    def clear(self) -> None:
        """Begin anew: a metric was written."""
        self._lines.clear()

    def error(self) -> str | None:
        """Return the error that ended the training, None without one."""
        lines = list(self._lines)
        begun = [
            number
            for number, line in enumerate(lines)
            if TRACEBACK in line and IGNORED not in (lines[number - 1] if number else "")
        ]
        if begun:
            return shortened(last_words("\n".join(lines[begun[0] :])))
        said = next((line for line in reversed(lines) if DEATH.search(line)), None)
        return None if said is None else shortened(said.strip())
