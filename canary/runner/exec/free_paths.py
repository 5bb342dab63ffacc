"""Where a launch of the user's command may do as it likes: caches, devices, the run's own folder.

Loaded in each Python process of the command (see `canary.runner.exec.file_notes`). Standard library only.
"""
# ruff: noqa: PTH111, PTH112, PTH118, PTH119, PTH120, PTH123, PTH109
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
"""What in `HF_HOME` is a cache."""
KNOWN = (
    *("deep_gemm", "flashinfer", "fontconfig", "matplotlib", "nvidia", "pip", "tilelang", "torch"),
    *("torch_extensions", "triton", "uv", "vllm", "wandb"),
)
"""What in `~/.cache` is a cache. A folder of a project of the user's own may hold anything."""
CACHE_NAMES = ("__pycache__", ".locks")
INDUCTOR = "torchinductor_"
"""Folders of which no launch loses anything: the next one finds them warm. The second is how their
names begin."""
HUB = ("models--", "datasets--")
"""How folders begin that hold what came from the hub."""
STARTED_IN = "cwd"
"""In the folder of notes: where the command was started."""


class Free(NamedTuple):
    """Where a command may do as it likes; no cache holds the folder that it was started in."""

    folders: tuple[str, ...]
    """End with `/`."""
    of_caches: tuple[str, ...]
    """Folders that may be made, and in which not all is free. End with `/`."""
    here: str
    """The folder that it was started in, and `/`."""


def free_of(notes: str) -> Free:
    """For the launch whose notes are in a folder two below the run's own."""
    return free_folders(os.path.dirname(os.path.dirname(notes)), started_in(notes))


def started_in(folder: str) -> str:
    """Where the launch was started whose notes are in `folder`."""
    try:
        with open(os.path.join(folder, STARTED_IN)) as stream:
            return stream.read()
    except (OSError, ValueError):
        return os.getcwd()


def free_folders(run: str, cwd: str) -> Free:
    """For a command that was started in `cwd`: the run's own folder, devices, caches."""
    home = os.path.expanduser("~")
    homes = {f"{home}/.cache", os.environ.get("XDG_CACHE_HOME") or f"{home}/.cache"}
    hubs = [os.environ.get("HF_HOME") or f"{one}/huggingface" for one in homes]
    found = [f"{home}/.{name}" for name in ("triton", "nv")]
    found += [os.environ[name] for name in CACHES if os.environ.get(name)]
    found += [os.path.join(one, name) for one in hubs for name in HF_CACHES]
    found += [os.path.join(one, name) for one in homes for name in KNOWN]
    here = os.path.realpath(cwd) + "/"

    def elsewhere(paths: Iterable[str]) -> list[str]:
        real = (os.path.realpath(path) + "/" for path in paths)
        return [path for path in real if not here.startswith(path)]

    free = (os.path.realpath(run) + "/", "/dev/", "/proc/", "/sys/", *elsewhere(found))
    return Free(free, tuple(elsewhere((*homes, *hubs))), here)


def is_free(path: str, free: Free) -> bool:
    """Whether nobody looks after this path."""
    if is_within(path, free) or _is_cached(path, free.here):
        return True
    return path.endswith(".arrow") and os.path.basename(path).startswith("cache-")


def is_within(path: str, free: Free) -> bool:
    """Whether the path is in a free folder; shared memory is no device."""
    whole = path + "/"
    if whole.startswith("/dev/shm/"):
        return any(whole.startswith(one) for one in free.folders if one != "/dev/")
    return whole.startswith(free.folders) or whole in free.of_caches


def _is_cached(path: str, here: str) -> bool:
    folder = ""
    for part in path.split("/")[1:]:
        folder += "/" + part
        named = part in CACHE_NAMES or part.startswith(INDUCTOR)
        if (named or (part.startswith(HUB) and is_hub_cache(folder))) and not here.startswith(
            folder + "/"
        ):
            return True
    return False


def is_hub_cache(folder: str) -> bool:
    """Whether the folder has what the hub's cache has in each of its folders."""
    has = [os.path.isdir(os.path.join(folder, name)) for name in ("snapshots", "blobs", "refs")]
    return has[0] and any(has[1:])
