"""The events of torch's profiler, read as torch reads them, in a fifth of its time and memory.

`profile.events()` makes an object of fifty fields for each event, which costs seconds and hundreds
of MB for a window of a few steps, within the training. Here is what the canary reads, and how
events are put into each other and to their kernels is torch's own way (`torch.autograd.profiler`).
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
    """From one moment to another, in microseconds."""

    start: float
    end: float


class Kernel(NamedTuple):
    """What an operator launched, in microseconds."""

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
        """On the host, with what it calls."""
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
        """One more."""
        self.count += 1
        self.cpu_time_total += event.cpu_time_total
        self.self_cpu_time_total += event.self_cpu_us
        self.device_time_total += event.device_us
        self.self_device_time_total += event.device_us - event.children_device_us


def _told(found: Any) -> str:
    try:
        return str(found.name())
    except UnicodeDecodeError:
        return "(a name that cannot be read)"  # seen of Python's calls, with `with_stack`


@functools.lru_cache(maxsize=65536)
def _name(told: str) -> str:
    """The name as torch shows it; empty for what it leaves out."""
    return "" if _filter_name(told) else str(_rewrite_name(name=told, with_wildcard=True))


@functools.cache
def _kind(device_type: Any) -> str:
    return str(device_type).rsplit(".", 1)[-1]


@contextmanager
def read_events(result: Any, *, on_device: bool) -> Iterator[tuple[list[Average], list[Event]]]:
    """`key_averages()` and `events()` of what the profiler left; gone after the `with`.

    Raises:
        AttributeError: this version of torch leaves its events otherwise.
    """
    collecting = gc.isenabled()
    gc.disable()  # it would walk through all of these objects again and again
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
            # They hold each other in circles.
            event.cpu_parent = None
            event.cpu_children.clear()
        events.clear()
        if collecting:
            gc.enable()


def _read(result: Any) -> list[Event]:
    """Each event, with its kernels and in its parent."""
    start_ns = result.trace_start_ns()
    events: list[Event] = []
    linked: dict[int, list[Event]] = {}
    frontend: list[Event] = []
    for found in result.events():
        name = _name(_told(found))
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
    """Puts each event into the innermost one of its thread that it lies in; they come by start."""
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
    """Without events that are all that an event of their own name calls."""
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
    """Times of events without what they call, and of what they launch; parents come first."""
    for event in reversed(events):
        parent = event.cpu_parent
        if parent is not None:
            parent.self_cpu_us -= event.cpu_time_total
        if not on_device or event.is_async:
            continue
        if event.on_cpu:
            own = sum(kernel.duration for kernel in event.kernels)
            event.device_us = own + event.children_device_us
        else:
            event.device_us = event.time_range.end - event.time_range.start
        if parent is not None:
            parent.children_device_us += event.device_us
