"""What readers of rows share: a row's numbers, its time, what is not a number, and whether a log
ends in an error."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from canary.errors import InputError
from canary.imports.entries import TEXT, Entry, Telling, as_value, place_of, plain, shortened
from canary.protocol.failure import last_words

TIME_NAMES = ("_timestamp", "timestamp", "time", "wall_time")
"""Fields that hold the time of a row in any case, if the value can be one."""
EARLIEST, LATEST = 946_684_800.0, 7_258_118_400.0
"""The years 2000 to 2200, in seconds since the epoch: other numbers are no time of a row."""
GROUP_NAMES = ("run", "run_name", "run_id", "experiment", "trial", "seed", "rank", "split")
"""Fields that tell rows of several runs apart, in any case."""
DEEPEST = 20
"""Levels of objects in a row."""
LONGEST_TEXT = 200
"""Characters that are kept of what is no number."""
WITH_COMMA = re.compile(r"[-+]?\d[\d.' ]*(,\d+|(,\d{3})+(\.\d+)?)([eE][-+]?\d+)?")
"""A number with a comma: its decimals in one country, its thousands in another."""


def unix_time(value: Any) -> float | None:
    """Return a value as seconds since the epoch, if it is a moment: a number or ISO 8601."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None
        value = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if EARLIEST <= value <= LATEST else None


def entry_of(row: Mapping[str, Any], telling: Telling, file: str, line: int | None = None) -> Entry:
    """Return a row's numbers. Objects in it are flattened: `{"a": {"b": 1}}` has `a/b`. Text,
    lists and yes-or-no values are told.

    Raises:
        InputError: a number has a comma.
    """
    values: dict[str, float | None] = {}
    texts: dict[str, str] = {}
    times: list[float] = []
    group: list[str] = []
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
            try:
                number, why = as_value(value), ""
            except TypeError as error:
                number, why = None, str(error)
            kind = plain(name)
            moment = unix_time(value if number is None else number) if kind in TIME_NAMES else None
            if moment is not None:
                times.append(moment)
                continue
            if kind in GROUP_NAMES and value is not None:
                group.append(str(value))
                if why == TEXT:
                    continue
            if not why:
                values[name] = number
                continue
            if why == TEXT and WITH_COMMA.fullmatch(value.strip()):
                raise InputError(
                    f"{place_of(file, line)}: `{shortened(name)}` is {shortened(value)}, and the "
                    "comma may begin decimals or thousands",
                    "write numbers with a decimal point and without thousands",
                )
            texts[name] = str(value)[:LONGEST_TEXT]
            telling.tell(f"`{shortened(name)}` is {why}, not a number", file, line)
    time = times[0] if times else None
    return Entry(None, values, time, line=line, group=", ".join(group), texts=texts)


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
