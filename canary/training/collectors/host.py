"""What the training process alone can tell of its host: Python's lock and context switches."""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

POLLING_US, SAMPLING_US, SLEEPING_US = 1_000, 5_000, 500_000
"""gilknocker knocks each millisecond for 5 ms, then sleeps for 500: ten times as often cost a
training 10% of its wall time on a busy machine (docs/bottlenecks.md)."""
LEAST_S = 1.1
"""Seconds of training that hold two samples; the first comes after the first sleep."""
TOO_SHORT = f"Python's lock is sampled twice a second, and the training took less than {LEAST_S} s"
LOCK = ("host.gil_contention", "host.gil_held")
NO_KNOCKER = "gilknocker is not installed in the Python that trains: pip install 'rlhf-canary[gil]'"


FOREIGN = (
    "Python's lock is sampled in processes of the canary's own (canary run): now and then "
    "gilknocker aborts one that ends"
)


class HostMeter:
    """Watches one training from `begin` to `end`; with `own_process`, and where it is there, with a
    thread of gilknocker's: a user's process must end as it would without."""

    def __init__(self, own_process: bool = False) -> None:
        self._own_process = own_process
        self.unmeasured: dict[str, str] = {}
        self._knocker: Any = None
        self._before, self._began = (0, 0), 0.0

    def begin(self) -> None:
        """From here on."""
        self._before, self._began = _switches(), time.monotonic()
        if not self._own_process:
            self.unmeasured = dict.fromkeys(LOCK, FOREIGN)
            return
        try:
            from gilknocker import KnockKnock
        except ImportError:
            self.unmeasured = dict.fromkeys(LOCK, NO_KNOCKER)
            return
        self._knocker = KnockKnock(POLLING_US, SAMPLING_US, SLEEPING_US)
        self._knocker.start()

    def gil_held(self) -> float | None:
        """Share of the training so far in which the lock was held; None before two samples. 0.1 us
        to read."""
        if self._knocker is None or time.monotonic() - self._began < LEAST_S:
            return None
        return float(self._knocker.contention_metric)

    def end(self) -> dict[str, float]:
        """Stops, and tells as `Launch.host` has it."""
        voluntary, involuntary = (
            now - before for now, before in zip(_switches(), self._before, strict=True)
        )
        found: dict[str, float] = {
            "voluntary_switches": voluntary,
            "involuntary_switches": involuntary,
        }
        if self._knocker is not None and time.monotonic() - self._began < LEAST_S:
            self.unmeasured = dict.fromkeys(LOCK, TOO_SHORT)
        elif self._knocker is not None:
            found["gil_held"] = float(self._knocker.contention_metric)
        self.stop()
        return found

    def stop(self) -> None:
        """Ends the knocking, whatever became of the training."""
        knocker, self._knocker = self._knocker, None
        if knocker is not None:
            knocker.stop()


TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class ChildrenCpu:
    """CPU seconds of the processes that this thread started, those that load data above all, and of
    what these started and waited for; on Linux also of those that still run. 2 us to read, and 20
    for each that runs."""

    def __init__(self) -> None:
        self._listed: int | None = None
        self._last = 0.0

    def begin(self) -> None:
        """From here on, in the thread that trains."""
        place = Path(f"/proc/self/task/{threading.get_native_id()}/children")
        if self._listed is None and sys.platform == "linux" and place.exists():
            self._listed = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, self._listed)
        self._last = self._total()

    def since_last(self) -> float:
        """Seconds since the last call, or since the beginning."""
        before, self._last = self._last, self._total()
        # A child that nobody waits for takes its seconds with it.
        return max(0.0, self._last - before)

    def _total(self) -> float:
        alive = [] if self._listed is None else os.pread(self._listed, 1 << 16, 0).split()
        seconds = [_process_cpu_s(int(pid)) for pid in alive]
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return sum(seconds) + ended.ru_utime + ended.ru_stime


def _process_cpu_s(pid: int) -> float:
    """Its own by the clock whose number clock_getcpuclockid(3) makes of a process, and that of its
    ended children by its stat; 0 where it is gone."""
    try:
        own = time.clock_gettime((~pid << 3) | 2)
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0.0
    user, system = stat.rpartition(b")")[2].split()[13:15]
    return own + (int(user) + int(system)) / TICKS_PER_S


def _switches() -> tuple[int, int]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_nvcsw, used.ru_nivcsw
