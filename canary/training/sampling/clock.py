"""Another clock for one function, in a process that ends soon."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from typing import Any

from canary.training.exact.effective import unwrapped

Read = Callable[[float], float]
"""Gets the seconds of a clock, and returns what is to be read."""
CLOCKS = ("time", "monotonic", "perf_counter", "process_time")
CALENDARS = ("localtime", "gmtime", "ctime")
"""Functions that read the clock without an argument."""


def set_clock(function: Callable[..., Any], read: Read) -> None:
    """Let `time` and `datetime` say another time, also by the names that the function's module
    imported. Never undone."""
    replaced: dict[int, Any] = {}
    for name in CLOCKS:
        seconds, nanos = getattr(time, name), getattr(time, f"{name}_ns")
        replaced[id(seconds)] = other = _seconds(seconds, read)
        replaced[id(nanos)] = other_ns = _nanos(nanos, read)
        setattr(time, name, other)
        setattr(time, f"{name}_ns", other_ns)
    for name in CALENDARS:
        original = getattr(time, name)
        replaced[id(original)] = calendar = _calendar(original, time.time)
        setattr(time, name, calendar)
    replaced[id(time.strftime)] = formatted = _formatted(time.strftime, time.localtime)
    time.strftime = formatted
    replaced[id(datetime.date)] = date = _date(time.time)
    replaced[id(datetime.datetime)] = moment = _moment(time.time)
    datetime.date, datetime.datetime = date, moment  # type: ignore[misc]
    for names in _globals(function):
        for name, value in [*names.items()]:
            if id(value) in replaced:
                names[name] = replaced[id(value)]


def _seconds(original: Callable[[], float], read: Read) -> Callable[[], float]:
    return lambda: read(original())


def _nanos(original: Callable[[], int], read: Read) -> Callable[[], int]:
    return lambda: int(read(original() / 1e9) * 1e9)


def _calendar(original: Callable[[float], Any], clock: Callable[[], float]) -> Callable[..., Any]:
    return lambda seconds=None: original(clock() if seconds is None else seconds)


def _formatted(original: Callable[..., str], now: Callable[[], Any]) -> Callable[..., str]:
    return lambda form, moment=None: original(form, now() if moment is None else moment)


def _moment(clock: Callable[[], float]) -> type[datetime.datetime]:
    class Moment(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Moment:
            return cls.fromtimestamp(clock(), tz)

        @classmethod
        def utcnow(cls) -> Moment:
            return cls.fromtimestamp(clock(), datetime.UTC).replace(tzinfo=None)

        @classmethod
        def today(cls) -> Moment:
            return cls.fromtimestamp(clock())

    return Moment


def _date(clock: Callable[[], float]) -> type[datetime.date]:
    class Date(datetime.date):
        @classmethod
        def today(cls) -> Date:
            return cls.fromtimestamp(clock())

    return Date


def _globals(function: Callable[..., Any]) -> list[dict[str, Any]]:
    inner = unwrapped(function)
    call = type(inner).__call__
    found = [getattr(one, "__globals__", None) for one in (inner, call)]
    return [names for names in found if isinstance(names, dict)]
