"""Facts that only the training process can measure: Python's GIL and the CPU of children."""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any

POLLING_US, SAMPLING_US, SLEEPING_US = 1_000, 5_000, 500_000
"""gilknocker polls each millisecond for 5 ms, then sleeps for 500. Ten times as often cost 10% of a
training's wall time on a busy machine."""
LEAST_S = 1.1
"""Seconds of training that hold two samples; the first comes after the first sleep."""
TOO_SHORT = f"the training took less than {LEAST_S} s: Python's GIL is sampled every half second"
LOCK = ("host.gil_contention", "host.gil_held")
NO_KNOCKER = "gilknocker is not installed in the training's Python: pip install 'rlhf-canary[gil]'"
FOREIGN = (
    "Python's GIL is sampled by canary run only: gilknocker sometimes aborts a process at its end"
)


class HostMeter:
    """Measures one training from `begin` to `end`. It starts gilknocker's thread only with
    `own_process`, because gilknocker may abort a user's process at its end."""

    def __init__(self, own_process: bool = False) -> None:
        self._own_process = own_process
        self.unmeasured: dict[str, str] = {}
        self._knocker: Any = None
        self._began = 0.0

    def begin(self) -> None:
        """Start measuring."""
        self._began = time.monotonic()
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
        """Return the share of the training so far in which the GIL was held; None before two
        samples. Takes 0.1 us."""
        if self._knocker is None or time.monotonic() - self._began < LEAST_S:
            return None
        return float(self._knocker.contention_metric)

    def end(self) -> dict[str, float]:
        """Stop and return the fields of `Launch.host`; nothing without a beginning."""
        held = self.gil_held()
        if self._knocker is not None and held is None:
            self.unmeasured = dict.fromkeys(LOCK, TOO_SHORT)
        self.stop()
        return {} if held is None else {"gil_held": held}

    def stop(self) -> None:
        """Stop gilknocker, also after a failed training."""
        knocker, self._knocker = self._knocker, None
        if knocker is not None:
            knocker.stop()


TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class ChildrenCpu:
    """CPU seconds of processes that this thread started (mainly data loaders) and of those that
    they waited for. Running ones count only on Linux. Takes 2 us, plus 20 us per running one."""

    def __init__(self) -> None:
        self._listed: Path | None = None
        self._last = 0.0

    def begin(self) -> None:
        """Start measuring; call it in the thread that trains."""
        place = Path(f"/proc/self/task/{threading.get_native_id()}/children")
        if self._listed is None and sys.platform == "linux" and place.exists():
            self._listed = place
        self._last = self._total()

    def since_last(self) -> float:
        """Return the seconds since the last call, or since `begin`."""
        before, self._last = self._last, self._total()
        # The seconds of a child that ends without being waited for vanish from the total.
        return max(0.0, self._last - before)

    def _total(self) -> float:
        alive = [] if self._listed is None else self._listed.read_bytes().split()
        seconds = [_process_cpu_s(int(pid)) for pid in alive]
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return sum(seconds) + ended.ru_utime + ended.ru_stime


def _process_cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process (clock id as in clock_getcpuclockid(3)) and of its ended
    children (from its stat); 0 if it has ended."""
    try:
        seconds = time.clock_gettime((~pid << 3) | 2)
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0.0
    user, system = stat.rpartition(b")")[2].split()[13:15]
    return seconds + (int(user) + int(system)) / TICKS_PER_S
