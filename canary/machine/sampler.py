"""Sample CPU, resident memory and GPU utilisation in the background."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import psutil
import pynvml

from canary.machine.gpu import Device, utilization

INTERVAL_S = 0.5


class BackgroundSampler:
    """Samples a process tree and its device from a thread of the parent process.

    A sample reads /proc for each process of the tree: 0.1 to 0.3 ms per process.
    """

    def __init__(self, pid: int, device: Device | None = None, interval_s: float = INTERVAL_S):
        self._pid = pid
        self._device = device
        self._interval_s = interval_s
        self._values: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self._known: dict[int, psutil.Process] = {}
        self.latest: Mapping[str, float] = {}
        """The newest sample of each figure; replaced by a new mapping after each round."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="canary-sampler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def figures(self, between: tuple[float, float] | None = None) -> dict[str, dict[str, float]]:
        """Return `{figure: {mean, max, samples}}`, in percent of one core or bytes.

        Percentages use only samples `between` two moments (seconds since the epoch), if there are
        any: before that, the process imports and builds."""
        return {
            name: _figures(name, values, between) for name, values in sorted(self._values.items())
        }

    def _add(self, name: str, value: float) -> None:
        self._values[name].append((time.time(), value))

    def _loop(self) -> None:
        """Sample at once, soon, then at the interval: a launch may take less than a second."""
        pause_s = self._interval_s / 4
        while not self._stop.is_set():
            self._sample_processes()
            self._sample_device()
            self.latest = {name: values[-1][1] for name, values in self._values.items()}
            self._stop.wait(pause_s)
            pause_s = min(2 * pause_s, self._interval_s)

    def _sample_processes(self) -> None:
        first = self._pid not in self._known
        try:
            root = self._known.setdefault(self._pid, psutil.Process(self._pid))
            tree = [root, *root.children(recursive=True)]
        except psutil.Error:
            return
        cpu, rss = 0.0, 0
        for process in tree:
            # Keep the object: psutil measures CPU time since its last reading.
            known = self._known.setdefault(process.pid, process)
            try:
                cpu += known.cpu_percent()
                rss += known.memory_info().rss
            except psutil.Error:
                continue
        self._add("rss_bytes", float(rss))
        machine = psutil.cpu_percent()
        if not first:
            self._add("cpu_percent", cpu)
            self._add("machine_cpu_percent", machine)

    def _sample_device(self) -> None:
        if self._device is None:
            return
        try:
            readings: dict[str, Any] = utilization(self._device)
        except pynvml.NVMLError:
            self._device = None
            return
        for name, value in readings.items():
            self._add(name, value)


def _figures(
    name: str, values: list[tuple[float, float]], between: tuple[float, float] | None
) -> dict[str, float]:
    inside = [
        value
        for moment, value in values
        if between is None or name.endswith("_bytes") or between[0] <= moment <= between[1]
    ]
    used = inside or [value for _, value in values]
    return {"mean": sum(used) / len(used), "max": max(used), "samples": len(used)}
