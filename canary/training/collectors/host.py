"""The CPU of processes that the training process started, which only that one can measure."""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from pathlib import Path

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
