"""The device of a run: found, locked, watched."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from canary.collect.gpu import Device, device_in_use, device_lock, health, list_devices
from canary.collect.sampler import BackgroundSampler

LOCK_WAIT_S = 600.0

DEVICE_ONLY = (
    "memory.peak_allocated_bytes",
    "memory.peak_reserved_bytes",
    "perf.gpu_utilization_avg",
    "gpu_health",
)


class DeviceWatch:
    """Holds the lock of the device in use, and samples it during measured launches.

    Raises (on entry):
        MachineError: the device asked for is not there, or held by another canary.
    """

    def __init__(self, setting: str, lock_dir: Path) -> None:
        self._setting = setting
        self._lock_dir = lock_dir
        self._stack = ExitStack()
        self._sampler: BackgroundSampler | None = None
        self.device: Device | None = None
        self._reason = ""

    def __enter__(self) -> Self:
        devices = list_devices()
        variable = os.environ.get("CUDA_VISIBLE_DEVICES")
        self.device = device_in_use(self._setting, devices.found, variable)
        if self.device is not None:
            self._stack.enter_context(device_lock(self.device.uuid, self._lock_dir, LOCK_WAIT_S))
        self._reason = devices.reason or (
            "device: cpu was asked for" if self._setting == "cpu" else "no GPU is visible"
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_sampling()
        self._stack.close()

    @property
    def uuid(self) -> str | None:
        """Of the device in use; None without one, and for a MIG slice, which the user selects."""
        return None if self.device is None or self.device.mig else self.device.uuid

    def health(self) -> dict[str, Any]:
        """State of the device before the run; empty without one."""
        return {} if self.device is None else health(self.device)

    def unmeasured(self) -> dict[str, str]:
        """What a run without a device cannot measure, and why."""
        found = {"profiler": "profiling was off"}
        if self.device is None:
            found |= dict.fromkeys(DEVICE_ONLY, f"no GPU: {self._reason}")
        return found

    def start_sampling(self, pid: int) -> None:
        """Samples the process tree of `pid`."""
        self._sampler = BackgroundSampler(pid, self.device)
        self._sampler.start()

    def stop_sampling(self) -> dict[str, Any]:
        """Ends sampling and returns what was sampled; empty when nothing was."""
        if self._sampler is None:
            return {}
        sampled, self._sampler = self._sampler.stop(), None
        return sampled
