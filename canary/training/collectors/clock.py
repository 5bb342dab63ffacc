"""The step clock: wall time from one step's end to the next, cut into phases that add up to it.

The clock keeps a list of marks. Each mark starts an interval of one phase and ends the one before,
so nothing of a step's wall time is outside a phase and nothing is counted twice.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from canary.record.phases import COMPUTING, WHOLE
from canary.record.step_row import HostSeconds


class HostTimes:
    """The host's clocks at one moment, in seconds: 0.4 us to read them all."""

    __slots__ = ("cpu_s", "moment", "own_cpu_s")

    def __init__(self) -> None:
        self.moment = time.perf_counter()
        self.cpu_s = time.process_time()
        """CPU seconds of the process, of all its threads."""
        self.own_cpu_s = time.thread_time()
        """CPU seconds of this thread, which trains."""


class Mark(Protocol):
    """A moment: of the host, or of the device's stream."""

    host: HostTimes

    def seconds_until(self, later: Any) -> float: ...

    def is_past(self) -> bool: ...


class HostMark:
    """A moment of the host's monotonic clock."""

    __slots__ = ("host",)

    def __init__(self) -> None:
        self.host = HostTimes()

    def seconds_until(self, later: HostMark) -> float:
        """Seconds from this mark to `later`."""
        return later.host.moment - self.host.moment

    def is_past(self) -> bool:
        """Host marks are past when they are made."""
        return True


class DeviceMark:
    """A moment of the current CUDA stream: an event, recorded without waiting for it."""

    __slots__ = ("event", "host")

    def __init__(self) -> None:
        self.event = torch.cuda.Event(enable_timing=True)
        self.event.record()
        self.host = HostTimes()

    def seconds_until(self, later: DeviceMark) -> float:
        """Seconds on the device's own clock; both events must be past."""
        return float(self.event.elapsed_time(later.event)) / 1000.0

    def is_past(self) -> bool:
        """Whether the device has reached the mark. Does not wait."""
        return bool(self.event.query())


@dataclass(frozen=True)
class StepTime:
    """One finished step: `marks[i]` starts an interval of `phases[i]`; the last mark ends it."""

    marks: tuple[Mark, ...]
    phases: tuple[str, ...]

    def is_ready(self) -> bool:
        """Whether the times can be read without waiting for the device."""
        return self.marks[-1].is_past()

    def wall_s(self) -> float:
        """Seconds from the previous step's end to this one's."""
        return self.marks[0].seconds_until(self.marks[-1])

    def by_phase(self) -> dict[str, float]:
        """Seconds by phase; they add up to `wall_s`."""
        totals: dict[str, float] = defaultdict(float)
        for phase, start, end in zip(self.phases, self.marks, self.marks[1:], strict=False):
            totals[phase] += start.seconds_until(end)
        return dict(totals)

    def cpu_s(self) -> float:
        """CPU seconds of the process, all its threads, over the whole step."""
        return self.marks[-1].host.cpu_s - self.marks[0].host.cpu_s

    def cpu_by_phase(self) -> dict[str, float]:
        """CPU seconds of the process by phase; on a device, what the host spent meanwhile."""
        totals: dict[str, float] = defaultdict(float)
        for phase, start, end in zip(self.phases, self.marks, self.marks[1:], strict=False):
            totals[phase] += end.host.cpu_s - start.host.cpu_s
        return dict(totals)

    def on_host(self) -> HostSeconds:
        """Where the thread that trains was, in seconds:

        - `computing_s`: wall time on the host of the phases that compute;
        - `waiting_s`: of those, when the thread was not on a core: it waited for a lock, a file,
          another thread, or for a core;
        - `others_s`: CPU seconds of the process's other threads meanwhile;
        - `own_cpu_s`: CPU seconds of the thread over the whole step.

        A device's backward runs in a thread of its own, for which this one waits: no part of it.
        """
        waited = {"backward"} if isinstance(self.marks[0], DeviceMark) else set()
        found: HostSeconds = {"computing_s": 0.0, "waiting_s": 0.0, "others_s": 0.0}
        for phase, start, end in zip(self.phases, self.marks, self.marks[1:], strict=False):
            if phase in COMPUTING and phase not in waited:
                wall = end.host.moment - start.host.moment
                own = end.host.own_cpu_s - start.host.own_cpu_s
                found["computing_s"] += wall
                found["waiting_s"] += wall - own
                found["others_s"] += end.host.cpu_s - start.host.cpu_s - own
        whole = self.marks[-1].host.own_cpu_s - self.marks[0].host.own_cpu_s
        found["own_cpu_s"] = whole
        return found


class StepClock:
    """Marks the phases of the running step. `start()` first, `close()` at each step's end."""

    def __init__(self, device: torch.device) -> None:
        self._make_mark: type[HostMark | DeviceMark] = (
            DeviceMark if device.type == "cuda" else HostMark
        )
        self._phase = "other"
        self._marks: list[Mark] = []
        self._phases: list[str] = []

    def mark(self) -> Mark:
        """This moment, on the clock of the steps."""
        return self._make_mark()

    def start(self) -> None:
        """Begins the first step now."""
        self._marks = [self._make_mark()]
        self._phases = [self._phase]

    def switch(self, phase: str) -> str:
        """Ends the current phase and begins `phase`; returns the one that ended."""
        previous, self._phase = self._phase, phase
        if self._marks:
            self._marks.append(self._make_mark())
            self._phases.append(phase)
        return previous

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time inside belongs to `name`, but for inner phases, which keep their own; of one of
        `WHOLE` all does."""
        if self._phase in WHOLE:
            yield
            return
        previous = self.switch(name)
        try:
            yield
        finally:
            self.switch(previous)

    def close(self) -> StepTime:
        """Ends the step and begins the next one at the same mark."""
        end = self._make_mark()
        step = StepTime((*self._marks, end), tuple(self._phases))
        self._marks = [end]
        self._phases = [self._phase]
        return step
