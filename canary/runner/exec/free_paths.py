"""Free paths, where a repeated command may change files: caches, devices, the run's folder.

Loaded in each Python process of the command (see `file_notes`). Standard library only.
"""
# ruff: noqa: PTH110, PTH111, PTH112, PTH118, PTH119, PTH120, PTH123, PTH109
# pathlib costs an import in every process of the command

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

CACHES = (
    *("HF_DATASETS_CACHE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_MODULES_CACHE"),
    *("TRANSFORMERS_CACHE", "TORCH_HOME", "TORCH_EXTENSIONS_DIR"),
    *("TRITON_CACHE_DIR", "TRITON_HOME", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH"),
)
HF_CACHES = ("hub", "datasets", "modules", "xet", "assets")
"""Caches in `HF_HOME`."""
KNOWN = (
    *("deep_gemm", "flashinfer", "fontconfig", "matplotlib", "nvidia", "pip", "tilelang", "torch"),
    *("torch_extensions", "triton", "uv", "vllm", "wandb"),
)
"""Caches in `~/.cache`. Other folders there may hold the user's files."""
CACHE_NAMES = ("__pycache__", ".locks")
INDUCTOR = "torchinductor_"
"""Names, and the start of a name, of cache folders: changes in them cannot harm another launch."""
RAYS_SESSION = ("session_2", "session_latest")
"""How the names of the folders begin in which Ray's servers write."""
HUB = ("models--", "datasets--")
"""How the names of folders with downloads from the hub begin."""
STARTED_IN = "cwd"
"""The file in the folder of notes that holds the working folder of the command."""
IS_COPY = "copy"
"""The file in the folder of notes that marks the working folder as a copy of the user's. A launch
may change anything there."""


class Free(NamedTuple):
    """Free paths of one command. A cache around its working folder does not count."""

    folders: tuple[str, ...]
    """End with `/`."""
    of_caches: tuple[str, ...]
    """Folders that may be created, but whose content is not all free. End with `/`."""
    here: str
    """The working folder, with `/` at the end."""


def free_of(notes: str) -> Free:
    """Return the free paths of the launch with this folder of notes, two levels below the run's."""
    cwd = started_in(notes)
    free = free_folders(os.path.dirname(os.path.dirname(notes)), cwd)
    if os.path.exists(os.path.join(notes, IS_COPY)):
        return free._replace(folders=(*free.folders, os.path.realpath(cwd) + "/"))
    return free


def started_in(folder: str) -> str:
    """Return the working folder of the launch whose notes are in `folder`."""
    try:
        with open(os.path.join(folder, STARTED_IN)) as stream:
            return stream.read()
    except (OSError, ValueError):
        return os.getcwd()


def free_folders(run: str, cwd: str) -> Free:
    """Return the free paths of a command started in `cwd`: the run's folder, devices, caches."""
    home = os.path.expanduser("~")
    homes = {f"{home}/.cache", os.environ.get("XDG_CACHE_HOME") or f"{home}/.cache"}
    hubs = [os.environ.get("HF_HOME") or f"{one}/huggingface" for one in homes]
    found = [f"{home}/.{name}" for name in ("triton", "nv")]
    found += [os.environ[name] for name in CACHES if os.environ.get(name)]
    found += [f"{home}/.ray", os.path.join(os.environ.get("RAY_TMPDIR") or "/tmp", "ray")]
    found += [os.path.join(one, name) for one in hubs for name in HF_CACHES]
    found += [os.path.join(one, name) for one in homes for name in KNOWN]
    here = os.path.realpath(cwd) + "/"

    def elsewhere(paths: Iterable[str]) -> list[str]:
        real = (os.path.realpath(path) + "/" for path in paths)
        return [path for path in real if not here.startswith(path)]

    free = (os.path.realpath(run) + "/", "/dev/", "/proc/", "/sys/", *elsewhere(found))
    return Free(free, tuple(elsewhere((*homes, *hubs))), here)


def is_free(path: str, free: Free) -> bool:
    """Whether a launch may change this path without a note."""
    if is_within(path, free) or _is_cached(path, free.here):
        return True
    return path.endswith(".arrow") and os.path.basename(path).startswith("cache-")


def is_within(path: str, free: Free) -> bool:
    """Whether the path is in a free folder. Shared memory is not free, although it is in /dev."""
    whole = path + "/"
    if whole.startswith("/dev/shm/"):
        return any(whole.startswith(one) for one in free.folders if one != "/dev/")
    return whole.startswith(free.folders) or whole in free.of_caches


def _is_cached(path: str, here: str) -> bool:
    folder = ""
    for part in path.split("/")[1:]:
        folder += "/" + part
        is_rays = part.startswith(RAYS_SESSION) and part.count("_") in (1, 4)
        named = part in CACHE_NAMES or part.startswith(INDUCTOR) or is_rays
        if (named or (part.startswith(HUB) and is_hub_cache(folder))) and not here.startswith(
            folder + "/"
        ):
            return True
    return False


def is_hub_cache(folder: str) -> bool:
    """Whether the folder looks like one of the hub's cache."""
    has = [os.path.isdir(os.path.join(folder, name)) for name in ("snapshots", "blobs", "refs")]
    return has[0] and any(has[1:])
