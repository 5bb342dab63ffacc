"""Inspect, without torch, what this machine offers to the switches of the ladder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass

from canary.config.schema import CanaryConfig
from canary.machine.environment import cpu_model, usable_cores
from canary.machine.gpu import list_devices, visible
from canary.machine.packages import package_versions


@dataclass(frozen=True)
class Machine:
    """Devices, packages and tools that a config can use here."""

    cpu: str
    cores: int
    gpus: tuple[str, ...] = ()
    """Names of the GPUs that the config's `device` may use."""
    no_gpu: str = "no GPU"
    """Why no GPU counts."""
    packages: Mapping[str, str | None] | None = None
    """Version by package; None if it is not installed."""
    compiler: bool = False
    """Whether torch.compile can run: it needs a C++ compiler on a CPU, a C compiler and triton on a
    GPU."""

    def has(self, package: str) -> bool:
        """Whether a package is installed."""
        return bool((self.packages or {}).get(package))

    @property
    def words(self) -> str:
        """Describe the machine in a few words."""
        torch = (self.packages or {}).get("torch") or "unknown"
        where = ", ".join(self.gpus) if self.gpus else f"{self.cpu}, {self.cores} cores"
        return f"{where}, torch {torch}"


def this_machine(config: CanaryConfig, environ: Mapping[str, str] = os.environ) -> Machine:
    """Inspect this machine for a config; with `device: cpu` no GPU counts."""
    packages = package_versions()
    gpus, why = _gpus(config, environ, str(packages.get("torch")))
    return Machine(
        cpu=cpu_model(),
        cores=len(usable_cores() or ()) or os.cpu_count() or 1,
        gpus=gpus,
        no_gpu=why,
        packages=packages,
        compiler=_compiler(bool(gpus), environ) and (not gpus or bool(packages.get("triton"))),
    )


def _compiler(gpu: bool, environ: Mapping[str, str]) -> bool:
    chosen = environ.get("CC" if gpu else "CXX")
    names = (chosen,) if chosen else ("gcc", "clang", "cc") if gpu else ("g++", "clang++", "c++")
    return any(map(shutil.which, names))


def _gpus(
    config: CanaryConfig, environ: Mapping[str, str], torch: str
) -> tuple[tuple[str, ...], str]:
    if config.device == "cpu":
        return (), "the config's device is cpu"
    if torch.endswith("+cpu"):
        return (), f"torch {torch} is a CPU build"
    devices = list_devices()
    seen = visible(devices.found, environ.get("CUDA_VISIBLE_DEVICES"))
    names = tuple(device.name for device in seen)
    if ":" in config.device:
        names = names[:1]
    return names, "" if names else f"no GPU: {devices.reason or 'none is visible'}"
