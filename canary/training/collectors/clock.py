"""The step clock: wall time from one step's end to the next, split into phases. Each mark ends one
interval and starts the next, so that phases add up to the step's wall time. And numbers that a
device delivers later."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from canary.record.phases import COMPUTING, WHOLE
from canary.record.step_row import HostSeconds


class HostMark:
    """A moment on the host's clocks, in seconds. Reading all takes 0.4 us."""

    __slots__ = ("cpu_s", "moment", "own_cpu_s")

    def __init__(self) -> None:
        self.moment = time.perf_counter()
        self.cpu_s = time.process_time()
        """CPU seconds of all threads of the process."""
        self.own_cpu_s = time.thread_time()
        """CPU seconds of this thread, which trains."""

    def seconds_until(self, later: Any) -> float:
        """Return the seconds from this mark to `later`."""
        return float(later.moment - self.moment)

    def is_past(self) -> bool:
        """Return True: a host mark is past as soon as it is made."""
        return True


class DeviceMark(HostMark):
    """A moment in the current CUDA stream too: an event, recorded without waiting for it."""

    __slots__ = ("event",)

    def __init__(self) -> None:
        self.event = torch.cuda.Event(enable_timing=True)
        self.event.record()
        super().__init__()

    def seconds_until(self, later: Any) -> float:
        """Return the seconds on the device's clock; both events must be past."""
        return float(self.event.elapsed_time(later.event)) / 1000.0

    def is_past(self) -> bool:
        """Return whether the device has reached the mark. Does not wait."""
        return bool(self.event.query())


@dataclass(frozen=True)
class StepTime:
    """One finished step: `marks[i]` starts an interval of `phases[i]`; the last mark ends it."""

    marks: tuple[HostMark, ...]
    phases: tuple[str, ...]

    def is_ready(self) -> bool:
        """Return whether the times can be read without waiting for the device."""
        return self.marks[-1].is_past()

    def wall_s(self) -> float:
        """Return the seconds from the previous step's end to this one's."""
        return self.marks[0].seconds_until(self.marks[-1])

    def by_phase(self) -> dict[str, float]:
        """Return the seconds by phase; they add up to `wall_s`."""
        return self._summed(start.seconds_until(end) for start, end in pairwise(self.marks))

    def _summed(self, seconds: Iterable[float]) -> dict[str, float]:
        totals: dict[str, float] = defaultdict(float)
        for phase, each in zip(self.phases, seconds, strict=True):
            totals[phase] += each
        return dict(totals)

    def cpu_s(self) -> float:
        """Return the CPU seconds of all threads of the process in the step."""
        return self.marks[-1].cpu_s - self.marks[0].cpu_s

    def cpu_by_phase(self) -> dict[str, float]:
        """Return the CPU seconds of the process on the host, by phase."""
        return self._summed(end.cpu_s - start.cpu_s for start, end in pairwise(self.marks))

    def on_host(self) -> HostSeconds:
        """Return where the training thread spent its time, in seconds:

        - `computing_s`: wall time on the host of the phases that compute;
        - `waiting_s`: the part of it without a core: the thread waited for a lock, a file, another
          thread, or a core;
        - `others_s`: CPU seconds of the process's other threads in the same phases;
        - `own_cpu_s`: CPU seconds of the training thread over the whole step.

        The backward phase on a device is left out: this thread waits while another one runs it.
        """
        waited = {"backward"} if isinstance(self.marks[0], DeviceMark) else set()
        found: HostSeconds = {"computing_s": 0.0, "waiting_s": 0.0, "others_s": 0.0}
        for phase, (start, end) in zip(self.phases, pairwise(self.marks), strict=True):
            if phase in COMPUTING and phase not in waited:
                wall = end.moment - start.moment
                on_core = end.own_cpu_s - start.own_cpu_s
                found["computing_s"] += wall
                found["waiting_s"] += wall - on_core
                found["others_s"] += end.cpu_s - start.cpu_s - on_core
        found["own_cpu_s"] = self.marks[-1].own_cpu_s - self.marks[0].own_cpu_s
        return found


class StepClock:
    """Marks the phases of the running step. Call `start()` first, `close()` at each step's end."""

    def __init__(self, device: torch.device) -> None:
        self.mark: type[HostMark] = DeviceMark if device.type == "cuda" else HostMark
        """Makes a mark of the moment at which it is called."""
        self._phase = "other"
        self._marks: list[HostMark] = []
        self._phases: list[str] = []
        self.told: Callable[[str], None] | None = None
        """Is told each phase when it begins."""

    def start(self) -> None:
        """Begin the first step now."""
        self._marks = [self.mark()]
        self._phases = [self._phase]

    def switch(self, phase: str) -> str:
        """End the current phase, begin `phase`, and return the one that ended."""
        previous, self._phase = self._phase, phase
        if self._marks:
            self._marks.append(self.mark())
            self._phases.append(phase)
        if self.told is not None:
            self.told(phase)
        return previous

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count time inside as phase `name`. Inner phases count separately, but not in `WHOLE`."""
        if self._phase in WHOLE:
            yield
            return
        previous = self.switch(name)
        try:
            yield
        finally:
            self.switch(previous)

    def close(self) -> StepTime:
        """End the step and begin the next one at the same mark."""
        end = self.mark()
        step = StepTime((*self._marks, end), tuple(self._phases))
        self._marks = [end]
        self._phases = [self._phase]
        return step


class DeferredScalars:
    """Scalars by name on their way to the host.

    On a CPU they are read at once. On CUDA `tolist` would wait for all queued work. So the stream
    copies them to pinned memory as one vector, and an event shows when it has arrived.
    """

    def __init__(self, scalars: Mapping[str, torch.Tensor | float]) -> None:
        tensors = {k: v.detach() for k, v in scalars.items() if isinstance(v, torch.Tensor)}
        self._plain = {k: v for k, v in scalars.items() if not isinstance(v, torch.Tensor)}
        self._names = list(tensors)
        self._values: list[float] = []
        self._event: Any = None
        if not tensors:
            return
        on_device = (value.device for value in tensors.values() if value.is_cuda)
        device = next(on_device, torch.device("cpu"))
        # float32 is inexact for counts above 2**24; the stack uses the widest dtype for all.
        wide = (v if v.is_floating_point() else v.double() for v in tensors.values())
        vector = torch.stack([v.to(device, non_blocking=True).reshape(()) for v in wide])
        if not vector.is_cuda:
            self._values = vector.tolist()
            return
        self._host = torch.empty(len(vector), dtype=vector.dtype, pin_memory=True)
        self._host.copy_(vector, non_blocking=True)
        self._event = torch.cuda.Event()
        self._event.record(torch.cuda.current_stream(vector.device))

    def is_ready(self) -> bool:
        """Return whether the numbers have arrived."""
        return self._event is None or bool(self._event.query())

    def wait(self) -> None:
        """Wait until the numbers have arrived."""
        if self._event is not None:
            self._event.synchronize()

    def read(self) -> dict[str, float]:
        """Return the scalars. Call it when ready."""
        values = self._values if self._event is None else self._host.tolist()
        return self._plain | dict(zip(self._names, values, strict=True))
