"""The device of a run: found, locked, watched."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from canary.errors import MachineError
from canary.machine.gpu import (
    Device,
    device_in_use,
    device_lock,
    health,
    list_devices,
    visible,
)
from canary.machine.sampler import BackgroundSampler
from canary.record.profile_folder import OFF

LOCK_WAIT_S = 600.0

DEVICE_ONLY = (
    "memory.peak_allocated_bytes",
    "memory.peak_reserved_bytes",
    "perf.gpu_utilization_avg",
    "gpu_health",
)


class HeldDevice:
    """Holds the lock of the device in use, and samples it during measured launches. Of several
    ranks each has a device: all are held, the first is sampled.

    Raises (on entry):
        MachineError: the device asked for is not there, or held by another canary.
    """

    def __init__(self, setting: str, lock_dir: Path, ranks: int = 1) -> None:
        self._setting = setting
        self._lock_dir = lock_dir
        self._ranks = ranks
        self._others: list[Device] = []
        self._stack = ExitStack()
        self._sampler: BackgroundSampler | None = None
        self.device: Device | None = None
        self._reason = ""

    def __enter__(self) -> Self:
        devices = list_devices()
        variable = os.environ.get("CUDA_VISIBLE_DEVICES")
        self.device = device_in_use(self._setting, devices.found, variable)
        if self.device is not None:
            self._others = self._further(self.device, visible(devices.found, variable))
            # In one order everywhere, so that two runs never wait for each other.
            for uuid in sorted(device.uuid for device in (self.device, *self._others)):
                self._stack.enter_context(device_lock(uuid, self._lock_dir, LOCK_WAIT_S))
        self._reason = devices.reason or (
            "device: cpu was asked for" if self._setting == "cpu" else "no GPU is visible"
        )
        return self

    def _further(self, first: Device, seen: list[Device]) -> list[Device]:
        """Devices of the ranks after the first: those that follow its own."""
        place = seen.index(first)
        found = seen[place : place + self._ranks]
        if len(found) < self._ranks:
            raise MachineError(
                f"{self._ranks} ranks need a GPU each and {len(found)} are there",
                "lower nproc, or set device: cpu",
            )
        return found[1:]

    def __exit__(self, *_: object) -> None:
        self.stop_sampling()
        self._stack.close()

    @property
    def uuid(self) -> str | None:
        """Of the device in use, or of those of all ranks with commas between; None without one, and
        for a MIG slice, which the user selects."""
        if self.device is None or self.device.mig:
            return None
        return ",".join(device.uuid for device in (self.device, *self._others))

    def health(self) -> dict[str, Any]:
        """State of the device before the run; empty without one."""
        return {} if self.device is None else health(self.device)

    def unmeasured(self) -> dict[str, str]:
        """What a run without a device cannot measure, and why."""
        found = {"profiler": OFF}
        if self.device is None:
            found |= dict.fromkeys(DEVICE_ONLY, f"no GPU: {self._reason}")
        return found

    def start_sampling(self, pid: int) -> None:
        """Samples the process tree of `pid`."""
        self._sampler = BackgroundSampler(pid, self.device)
        self._sampler.start()

    def latest(self) -> Mapping[str, float]:
        """The newest samples by name (see `BackgroundSampler`); empty when nothing samples."""
        return {} if self._sampler is None else self._sampler.latest

    def stop_sampling(self) -> BackgroundSampler | None:
        """Ends sampling and returns what sampled; None when nothing did."""
        sampler, self._sampler = self._sampler, None
        if sampler is not None:
            sampler.stop()
        return sampler
