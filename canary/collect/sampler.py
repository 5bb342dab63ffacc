"""Slow figures sampled in the background: CPU, resident memory, GPU utilisation."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

import psutil
import pynvml

from canary.collect.gpu import Device, utilization

INTERVAL_S = 0.5


class BackgroundSampler:
    """Samples a process tree, and its device, from a thread of the parent process.

    One sample reads /proc for each process of the tree: 0.1 to 0.3 ms each.
    """

    def __init__(self, pid: int, device: Device | None = None, interval_s: float = INTERVAL_S):
        self._pid = pid
        self._device = device
        self._interval_s = interval_s
        self._values: dict[str, list[float]] = defaultdict(list)
        self._known: dict[int, psutil.Process] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="canary-sampler", daemon=True)

    def start(self) -> None:
        """Begins sampling."""
        self._thread.start()

    def stop(self) -> dict[str, dict[str, float]]:
        """Ends sampling; `{figure: {mean, max, samples}}`, percent of one core or bytes."""
        self._stop.set()
        self._thread.join()
        return {
            name: {"mean": sum(values) / len(values), "max": max(values), "samples": len(values)}
            for name, values in sorted(self._values.items())
        }

    def _loop(self) -> None:
        while not self._stop.wait(self._interval_s):
            self._sample_processes()
            self._sample_device()

    def _sample_processes(self) -> None:
        first = self._pid not in self._known
        try:
            root = self._known.setdefault(self._pid, psutil.Process(self._pid))
            tree = [root, *root.children(recursive=True)]
        except psutil.Error:
            return
        cpu, rss = 0.0, 0
        for process in tree:
            # The object is kept: CPU time is measured against its own last reading.
            known = self._known.setdefault(process.pid, process)
            try:
                cpu += known.cpu_percent()
                rss += known.memory_info().rss
            except psutil.Error:
                continue
        self._values["rss_bytes"].append(float(rss))
        machine = psutil.cpu_percent()
        if not first:
            self._values["cpu_percent"].append(cpu)
            self._values["machine_cpu_percent"].append(machine)

    def _sample_device(self) -> None:
        if self._device is None:
            return
        try:
            readings: dict[str, Any] = utilization(self._device)
        except pynvml.NVMLError:
            self._device = None
            return
        for name, value in readings.items():
            self._values[name].append(value)
