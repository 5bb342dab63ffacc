"""Reads the events of torch's profiler in a fifth of torch's time and memory.

`profile.events()` makes an object of fifty fields per event. For a few steps this costs seconds and
hundreds of MB, during the training. This module reads only what the canary needs. It nests events
and links kernels as torch does (`torch.autograd.profiler`).
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Any, NamedTuple

from torch.autograd.profiler_util import _filter_name, _rewrite_name

DEVICES = ("CUDA", "PrivateUse1", "XPU")


class Span(NamedTuple):
    """An interval, in microseconds."""

    start: float
    end: float


class Kernel(NamedTuple):
    """A kernel that an operator launched; duration in microseconds."""

    name: str
    duration: float


class Event:
    """One event, with the attributes of torch's `FunctionEvent`."""

    __slots__ = (
        *("children_device_us", "cpu_children", "cpu_parent", "device_type", "device_us"),
        *("id", "is_async", "is_python_function", "is_user_annotation", "kernels"),
        *("name", "on_cpu", "scope", "self_cpu_us", "thread", "time_range", "__weakref__"),
    )

    def __init__(self, found: Any, name: str, trace_start_ns: int) -> None:
        self.id: int = found.correlation_id()
        self.name = name
        self.thread: int = found.start_thread_id()
        self.is_async = bool(found.is_async()) or self.thread != found.end_thread_id()
        self.device_type = found.device_type()
        self.on_cpu = _kind(self.device_type) == "CPU"
        self.scope: int = found.scope()
        self.is_user_annotation = bool(found.is_user_annotation())
        self.is_python_function = bool(getattr(found, "is_python_function", bool)())
        self.time_range = Span(
            (found.start_ns() - trace_start_ns) / 1000, (found.end_ns() - trace_start_ns) / 1000
        )
        self.kernels: list[Kernel] = []
        self.cpu_parent: Event | None = None
        self.cpu_children: list[Event] = []
        self.self_cpu_us = 0.0 if self.is_async else self.cpu_time_total
        self.device_us = self.children_device_us = 0.0

    @property
    def cpu_time_total(self) -> float:
        """Return the time on the host, children included, in microseconds."""
        return self.time_range.end - self.time_range.start if self.on_cpu else 0.0


class Average:
    """All events of one name, with the attributes of torch's `FunctionEventAvg`."""

    def __init__(self, first: Event) -> None:
        self.key = first.name
        self.device_type = first.device_type
        self.is_user_annotation = first.is_user_annotation
        self.scope = first.scope
        self.count = 0
        self.cpu_time_total = self.self_cpu_time_total = 0.0
        self.device_time_total = self.self_device_time_total = 0.0

    def add(self, event: Event) -> None:
        """Add one event."""
        self.count += 1
        self.cpu_time_total += event.cpu_time_total
        self.self_cpu_time_total += event.self_cpu_us
        self.device_time_total += event.device_us
        self.self_device_time_total += event.device_us - event.children_device_us


def _raw_name(found: Any) -> str:
    try:
        return str(found.name())
    except UnicodeDecodeError:
        return "(a name that cannot be read)"  # happens for Python calls, with `with_stack`


@functools.lru_cache(maxsize=65536)
def _name(raw: str) -> str:
    """Return the name as torch shows it; empty for events that torch leaves out."""
    return "" if _filter_name(raw) else str(_rewrite_name(name=raw, with_wildcard=True))


@functools.cache
def _kind(device_type: Any) -> str:
    return str(device_type).rsplit(".", 1)[-1]


@contextmanager
def read_events(result: Any, *, on_device: bool) -> Iterator[tuple[list[Average], list[Event]]]:
    """Yield `key_averages()` and `events()` of a profile; freed after the `with`.

    Raises:
        AttributeError: this version of torch stores its events differently.
    """
    collecting = gc.isenabled()
    gc.disable()  # it would scan all of these objects repeatedly
    events: list[Event] = []
    try:
        events = _without_doubles(_read(result))
        _add_up(events, on_device)
        averages: dict[tuple[str, str, bool], Average] = {}
        for event in events:
            key = (event.name, str(event.device_type), event.is_user_annotation)
            averages.setdefault(key, Average(event)).add(event)
        yield list(averages.values()), events
    finally:
        for event in events:
            # Break the reference cycles.
            event.cpu_parent = None
            event.cpu_children.clear()
        events.clear()
        if collecting:
            gc.enable()


def _read(result: Any) -> list[Event]:
    """Return the events, with their kernels and parents."""
    start_ns = result.trace_start_ns()
    events: list[Event] = []
    linked: dict[int, list[Event]] = {}
    frontend: list[Event] = []
    for found in result.events():
        name = _name(_raw_name(found))
        if not name or getattr(found, "is_hidden_event", bool)():
            continue
        event = Event(found, name, start_ns)
        events.append(event)
        link = found.linked_correlation_id()
        if link > 0:
            linked.setdefault(link, []).append(event)
        else:
            frontend.append(event)
    for event in frontend:
        if event.on_cpu and not event.is_async:
            for other in linked.get(event.id, ()):
                if other.on_cpu:
                    other.thread = event.thread
                elif _kind(other.device_type) in DEVICES:
                    length = other.time_range.end - other.time_range.start
                    event.kernels.append(Kernel(other.name, length))
    events.sort(key=lambda event: (event.time_range.start, -event.time_range.end))
    _nest(event for event in events if event.on_cpu and not event.is_async)
    return events


def _nest(events: Iterable[Event]) -> None:
    """Give each event its innermost enclosing event of the same thread; sorted by start."""
    for _, of_thread in groupby(sorted(events, key=lambda event: event.thread), _thread):
        open_ones: list[Event] = []
        for event in of_thread:
            while open_ones:
                parent = open_ones[-1]
                if event.time_range.end <= parent.time_range.end and (
                    event.time_range.start < parent.time_range.end
                ):
                    parent.cpu_children.append(event)
                    event.cpu_parent = parent
                    break
                open_ones.pop()
            open_ones.append(event)


def _thread(event: Event) -> int:
    return event.thread


def _without_doubles(events: list[Event]) -> list[Event]:
    """Remove events that are the only child of an event with the same name."""
    while True:
        kept = []
        for event in events:
            parent = event.cpu_parent
            if parent is None or parent.name != event.name or len(parent.cpu_children) != 1:
                kept.append(event)
                continue
            parent.cpu_children = event.cpu_children
            parent.kernels = event.kernels
            for child in event.cpu_children:
                child.cpu_parent = parent
        if len(kept) == len(events):
            return kept
        events = kept


def _add_up(events: list[Event], on_device: bool) -> None:
    """Compute each event's time without its children, and its device time; parents come first."""
    for event in reversed(events):
        parent = event.cpu_parent
        if parent is not None:
            parent.self_cpu_us -= event.cpu_time_total
        if not on_device or event.is_async:
            continue
        if event.on_cpu:
            launched = sum(kernel.duration for kernel in event.kernels)
            event.device_us = launched + event.children_device_us
        else:
            event.device_us = event.time_range.end - event.time_range.start
        if parent is not None:
            parent.children_device_us += event.device_us
