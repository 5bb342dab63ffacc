"""Inspect, without torch, what this machine offers to the switches of the ladder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field

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
    packages: Mapping[str, str | None] = field(default_factory=dict)
    """Version by package; None if it is not installed."""
    compiler: bool = False
    """Whether torch.compile can run: it needs a C++ compiler on a CPU, a C compiler and triton on a
    GPU."""

    def lacks(self, need: str) -> str:
        """Return why the machine has no `GPU`, `compiler` or package; empty if it has it."""
        if need == "GPU":
            return "" if self.gpus else self.no_gpu
        if need == "compiler":
            missing = "C compiler with triton" if self.gpus else "C++ compiler"
            return "" if self.compiler else f"no {missing}"
        return "" if self.packages.get(need) else f"{need} is not installed"

    @property
    def words(self) -> str:
        """Describe the machine in a few words."""
        where = ", ".join(self.gpus) or f"{self.cpu}, {self.cores} cores"
        return f"{where}, torch {self.packages.get('torch') or 'unknown'}"


def this_machine(config: CanaryConfig) -> Machine:
    """Inspect this machine for a config; with `device: cpu` no GPU counts."""
    packages = package_versions()
    gpus, why = _gpus(config, str(packages.get("torch")))
    chosen = os.environ.get("CC" if gpus else "CXX")
    usual = ("gcc", "clang", "cc") if gpus else ("g++", "clang++", "c++")
    compiler = any(map(shutil.which, (chosen,) if chosen else usual))
    return Machine(
        cpu=cpu_model(),
        cores=len(usable_cores() or ()) or os.cpu_count() or 1,
        gpus=gpus,
        no_gpu=why,
        packages=packages,
        compiler=compiler and (not gpus or bool(packages.get("triton"))),
    )


def _gpus(config: CanaryConfig, torch: str) -> tuple[tuple[str, ...], str]:
    if config.device == "cpu":
        return (), "the config's device is cpu"
    if torch.endswith("+cpu"):
        return (), f"torch {torch} is a CPU build"
    devices = list_devices()
    seen = visible(devices.found, os.environ.get("CUDA_VISIBLE_DEVICES"))
    names = tuple(device.name for device in seen)
    if ":" in config.device:
        names = names[:1]
    return names, "" if names else f"no GPU: {devices.reason or 'none is visible'}"
