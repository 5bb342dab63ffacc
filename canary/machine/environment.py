"""Comparable facts of the machine and its software. No torch."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

from canary.machine.git import Unread, read_git
from canary.machine.gpu import list_devices
from canary.machine.packages import package_versions
from canary.record.types import Environment, Git

VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_VISIBLE_DEVICES",
    "DNNL_MAX_CPU_ISA",
    "HF_HUB_OFFLINE",
    "KMP_BLOCKTIME",
    "MALLOC_ARENA_MAX",
    "MKL_ENABLE_INSTRUCTIONS",
    "MKL_NUM_THREADS",
    "NCCL_ALGO",
    "NCCL_IB_DISABLE",
    "NCCL_P2P_DISABLE",
    "NCCL_PROTO",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "OMP_PROC_BIND",
    "ONEDNN_MAX_CPU_ISA",
    "PYTHONDEVMODE",
    "PYTHONMALLOC",
    "PYTHONTRACEMALLOC",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TOKENIZERS_PARALLELISM",
    "TORCHDYNAMO_DISABLE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCH_COMPILE_DISABLE",
    "TORCH_DISTRIBUTED_DEBUG",
)
"""Environment variables that change training. No other one is recorded, except the image's name."""
IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@+ -]{0,299}")


def cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def usable_cores() -> list[int] | None:
    """Return the numbers of the cores that this process may use; None where only Linux says it."""
    if sys.platform == "linux":
        return sorted(os.sched_getaffinity(0))
    return None


def image_name(environ: Mapping[str, str]) -> str | None:
    """Return the image that the action started, or that of a machine of GitHub's."""
    named = environ.get("CANARY_IMAGE", "")
    if not named and environ.get("ImageVersion"):
        named = f"{environ.get('ImageOS', '')} {environ['ImageVersion']}".strip()
    return named if IMAGE.fullmatch(named) else None


def fingerprint() -> Environment:
    """Return the environment of a run. Memory in bytes."""
    devices, usable = list_devices(), usable_cores()
    return {
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu": cpu_model(),
        "cpu_count": os.cpu_count(),
        "cpu_usable": None if usable is None else len(usable),
        "ram_bytes": psutil.virtual_memory().total,
        # The marker files of docker and podman.
        "container": any(map(os.path.exists, ("/.dockerenv", "/run/.containerenv"))),
        "image": image_name(os.environ),
        "packages": package_versions(),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "driver": devices.driver,
        "cuda_driver": devices.cuda,
        "gpus": [device.describe() for device in devices.found],
        "gpu_reason": devices.reason,
    }


def git_state(folder: Path) -> Git:
    """Return commit, branch and number of changed files of the repository around `folder`.

    Outside a repository, or without git, `sha` is None and `reason` says why.
    """
    try:
        sha = _git(folder, "rev-parse", "HEAD")
        status = ("status", "--porcelain", "--ignore-submodules=dirty")
        changed = read_git(folder, *status, files=True, timeout_s=10).splitlines()
        branch = _git(folder, "rev-parse", "--abbrev-ref", "HEAD")
    except Unread as error:
        return {"sha": None, "reason": str(error)}
    return {
        "sha": sha,
        "branch": None if branch == "HEAD" else branch,
        "dirty": bool(changed),
        "changed_files": len(changed),
    }


def _git(folder: Path, *arguments: str) -> str:
    return read_git(folder, *arguments, timeout_s=10).strip()


def environment_lines(found: Environment) -> list[tuple[str, str]]:
    """Return the fingerprint as (name, value) lines for people."""
    lines = [
        ("python", f"{found['python']} ({found['implementation']})"),
        ("platform", found["platform"]),
        ("cpu", f"{found['cpu']}, {found['cpu_usable'] or found['cpu_count']} usable"),
        ("memory", f"{found['ram_bytes'] / 2**30:.1f} GiB"),
        ("container", found["image"] or ("yes" if found["container"] else "no")),
    ]
    if found["gpus"]:
        lines.append(("driver", f"{found['driver']}, CUDA {found['cuda_driver']}"))
        lines += [
            (f"gpu {gpu['index']}", f"{gpu['name']}, {gpu['memory_bytes'] / 2**30:.0f} GiB")
            for gpu in found["gpus"]
        ]
    else:
        lines.append(("gpu", f"none: {found['gpu_reason']}"))
    lines += [(name, version or "not installed") for name, version in found["packages"].items()]
    lines += list(found["variables"].items())
    return lines
