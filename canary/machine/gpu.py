"""NVIDIA devices through NVML: the device that torch uses, its use and its lock. No torch."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pynvml

from canary.errors import MachineError


@dataclass(frozen=True)
class Device:
    """One GPU or MIG slice, with NVML's index and uuid."""

    index: int
    uuid: str
    name: str
    memory_bytes: int
    mig: bool
    handle: Any = field(repr=False, compare=False)

    def describe(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "handle"}


@dataclass(frozen=True)
class Devices:
    """The devices that NVML sees; `reason` says why it sees none."""

    found: tuple[Device, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    reason: str | None = None


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def list_devices() -> Devices:
    """Return all devices of the machine; CUDA_VISIBLE_DEVICES is ignored."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Devices(reason=f"no NVIDIA driver answers ({error})")
    version = pynvml.nvmlSystemGetCudaDriverVersion_v2()
    found = tuple(_device(index) for index in range(pynvml.nvmlDeviceGetCount()))
    return Devices(
        found=found,
        driver=_text(pynvml.nvmlSystemGetDriverVersion()),
        cuda=f"{version // 1000}.{version % 1000 // 10}",
        reason=None if found else "the driver lists no device",
    )


def _device(index: int) -> Device:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    return Device(
        index=index,
        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
        name=_text(pynvml.nvmlDeviceGetName(handle)),
        memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
        mig=_mig_enabled(handle),
        handle=handle,
    )


def _mig_enabled(handle: Any) -> bool:
    try:
        return bool(pynvml.nvmlDeviceGetMigMode(handle)[0])
    except pynvml.NVMLError:
        return False


def visible(devices: Sequence[Device], variable: str | None) -> list[Device]:
    """Return the devices in torch's numbering. `variable`: the text of CUDA_VISIBLE_DEVICES.

    As in CUDA, it lists indices or uuids; a unique prefix is enough. The list ends at the first
    entry that names no device; empty text hides all. The order assumes that CUDA numbers by bus
    (CUDA_DEVICE_ORDER=PCI_BUS_ID), which the canary sets for its children.
    """
    if variable is None:
        return list(devices)
    chosen: list[Device] = []
    for entry in (part.strip() for part in variable.split(",")):
        if entry.isdigit():
            match = [device for device in devices if device.index == int(entry)]
        else:
            match = [device for device in devices if entry and device.uuid.startswith(entry)]
        if len(match) != 1 or match[0] in chosen:
            break
        chosen.append(match[0])
    return chosen


def device_in_use(setting: str, devices: Sequence[Device], variable: str | None) -> Device | None:
    """Return the device for a config's `device`; `auto` and `cuda` mean the first visible one.

    Raises:
        MachineError: the config names a missing device.
    """
    if setting == "cpu":
        return None
    seen = visible(devices, variable)
    if setting == "auto":
        return seen[0] if seen else None
    index = int(setting.partition(":")[2] or 0)
    if index >= len(seen):
        raise MachineError(
            f"the config says device: {setting}, but {len(seen)} GPUs are visible",
            "set device: auto or cpu, or look at `nvidia-smi` and CUDA_VISIBLE_DEVICES",
        )
    return seen[index]


def utilization(device: Device) -> dict[str, float]:
    """Return percents of the last sample period (a kernel ran; memory was read or written), and the
    bytes in use.

    Raises:
        NVMLError: the device does not report it, as a MIG slice.
    """
    rates = pynvml.nvmlDeviceGetUtilizationRates(device.handle)
    memory = pynvml.nvmlDeviceGetMemoryInfo(device.handle)
    return {
        "gpu_utilization": float(rates.gpu),
        "gpu_memory_utilization": float(rates.memory),
        "gpu_memory_bytes": float(memory.used),
    }


@contextmanager
def device_lock(uuid: str, folder: Path, wait_s: float) -> Iterator[None]:
    """Hold the lock of a device; another canary waits for it.

    Raises:
        MachineError: another process still holds it after `wait_s` seconds.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"gpu-{uuid}.lock"
    deadline = time.monotonic() + wait_s
    with path.open("a+") as stream:
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    stream.seek(0)
                    holder = stream.read().strip() or "unknown"
                    raise MachineError(
                        f"GPU {uuid} is held by another canary (process {holder})",
                        f"wait until it ends; this canary waited {wait_s:.0f} s",
                    ) from error
                time.sleep(min(0.2, max(0.01, wait_s / 10)))
        stream.truncate(0)
        stream.write(str(os.getpid()))
        stream.flush()
        yield
