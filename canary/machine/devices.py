"""The device of a run: find it, lock it, sample it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from canary.errors import MachineError
from canary.machine.gpu import Device, device_in_use, device_lock, list_devices, visible
from canary.machine.sampler import BackgroundSampler
from canary.record.profile_folder import OFF

LOCK_WAIT_S = 600.0

DEVICE_ONLY = (
    "memory.peak_allocated_bytes",
    "memory.peak_reserved_bytes",
    "perf.gpu_utilization_avg",
)


class HeldDevice:
    """Locks the device of each rank, and samples the first one during launches.

    Raises (on entry):
        MachineError: the requested device is missing, or another canary holds it.
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
            # Always in the same order, so that two runs never wait for each other.
            for uuid in sorted(device.uuid for device in (self.device, *self._others)):
                self._stack.enter_context(device_lock(uuid, self._lock_dir, LOCK_WAIT_S))
        self._reason = devices.reason or (
            "the config says device: cpu" if self._setting == "cpu" else "no GPU is visible"
        )
        return self

    def _further(self, first: Device, seen: list[Device]) -> list[Device]:
        """Return the devices of the ranks after the first: the next ones in order."""
        place = seen.index(first)
        found = seen[place : place + self._ranks]
        if len(found) < self._ranks:
            raise MachineError(
                f"{self._ranks} ranks need a GPU each, but this machine has {len(found)}",
                "lower nproc, or set device: cpu",
            )
        return found[1:]

    def __exit__(self, *_: object) -> None:
        self.stop_sampling()
        self._stack.close()

    @property
    def uuid(self) -> str | None:
        """The uuids of all ranks' devices, with commas; None without a device, and for a MIG slice,
        which the user selects."""
        if self.device is None or self.device.mig:
            return None
        return ",".join(device.uuid for device in (self.device, *self._others))

    def unmeasured(self) -> dict[str, str]:
        """Return the signals that this run cannot measure, each with the reason."""
        found = {"profiler": OFF}
        if self.device is None:
            found |= dict.fromkeys(DEVICE_ONLY, f"no GPU: {self._reason}")
        return found

    def start_sampling(self, pid: int) -> None:
        """Start sampling the process tree of `pid`."""
        self._sampler = BackgroundSampler(pid, self.device)
        self._sampler.start()

    def latest(self) -> Mapping[str, float]:
        """Return the newest samples by name (see `BackgroundSampler`); empty if nothing samples."""
        return {} if self._sampler is None else self._sampler.latest

    def stop_sampling(self) -> BackgroundSampler | None:
        """Stop sampling and return the sampler; None if nothing was sampled."""
        sampler, self._sampler = self._sampler, None
        if sampler is not None:
            sampler.stop()
        return sampler
