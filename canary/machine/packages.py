"""Versions of the packages that can change a training. Standard library only."""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

PACKAGES = (
    "torch",
    "transformers",
    "trl",
    "peft",
    "datasets",
    "accelerate",
    "tokenizers",
    "safetensors",
    "numpy",
    "bitsandbytes",
    "triton",
    "flash-attn",
    "liger-kernel",
    "deepspeed",
    "vllm",
    "kernels",
    "rlhf-canary",
)
MEASURING = ("gilknocker", "nvidia-ml-py", "psutil")
"""The canary imports them to measure a training; they change none."""
AT_START = ("_distutils_hack", "_virtualenv")
"""Modules that Python imports when it starts, because they are installed."""
METADATA = re.compile(r"[^-]+-[^-].*\.(dist|egg)-info")


def package_versions() -> dict[str, str | None]:
    """Return the installed version of each package; None if it is not installed."""
    versions: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return versions


def imported_packages() -> dict[str, str]:
    """Return the version of every package of which this process has loaded a file, by its name as
    PEP 503 writes it.

    Packages that run from a folder or a repository are left out, except those of `PACKAGES`: their
    code is the user's.
    """
    modules = dict(sys.modules)
    files = {file for file in map(_file_of, modules.values()) if isinstance(file, str)}
    files |= loaded_libraries()
    found: dict[str, str] = {}
    for site in dict.fromkeys(map(os.path.abspath, sys.path)):
        infos = _infos(site)
        imported = _imported(site, infos, files)
        for info in infos:
            stem, _, version = info.stem.partition("-")
            name = canonical(stem)
            known = name in PACKAGES and stem in modules
            if known or (info in imported and name not in MEASURING and not _is_users_own(info)):
                found.setdefault(name, version.partition("-py")[0])
    return dict(sorted(found.items()))


def _file_of(module: object) -> object:
    """Return a module's file. Asking a lazy module for an attribute would import it."""
    try:
        return object.__getattribute__(module, "__dict__").get("__file__")
    except AttributeError:
        return None


def loaded_libraries() -> set[str]:
    """Return the paths of the native libraries of this process, as those of CUDA; empty where the
    system does not list them."""
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return set()
    return {line[line.index("/") :] for line in lines if ".so" in line and "/" in line}


def _infos(site: str) -> list[Path]:
    """Return the metadata of the packages in a folder; their names hold the versions."""
    try:
        return [entry for entry in Path(site).iterdir() if METADATA.fullmatch(entry.name)]
    except OSError:
        return []


def _imported(site: str, infos: Sequence[Path], files: Iterable[str]) -> set[Path]:
    """Return the packages of a folder that have one of these files."""
    starts = {site + os.sep, os.path.realpath(site) + os.sep} if infos else set()
    loaded = {file[len(start) :] for start in starts for file in files if file.startswith(start)}
    roots = {_root(file) for file in loaded} - {*AT_START}
    shared = {
        # Most packages are named as what they install; the files of others are read.
        info: {info.stem.partition("-")[0]} & roots or _roots_of(info) & roots
        for info in infos
    }
    owners = Counter(root for names in shared.values() for root in names)
    return {
        info
        for info, names in shared.items()
        # Several packages share `nvidia` or `google`: there each file tells its package.
        if any(owners[root] == 1 for root in names)
        or (names and not loaded.isdisjoint(_files_of(info)))
    }


def _root(file: str) -> str:
    """Return the name by which a file is imported: `torch/nn/init.py` by `torch`."""
    first, below, _ = file.partition("/")
    return first if below else first.partition(".")[0]


def _roots_of(info: Path) -> set[str]:
    try:
        return {*(info / "top_level.txt").read_text(errors="replace").split()}
    except OSError:
        return {_root(file) for file in _files_of(info)} or {info.stem.partition("-")[0]}


def _files_of(info: Path) -> list[str]:
    """Return the files of a package, relative to its folder."""
    try:
        lines = (info / "RECORD").read_text(errors="replace").splitlines()
    except OSError:
        return []
    return [line.partition(",")[0] for line in lines]


def installed_packages() -> dict[str, str]:
    """Return the version of every package of this Python, by its name as PEP 503 writes it.

    Packages that run from a folder or a repository are left out: their code is the user's.
    """
    found: dict[str, str] = {}
    for package in metadata.distributions():
        described = package.metadata
        name, version = described["Name"], described["Version"]
        if name and version and not _from_folder(package.read_text("direct_url.json")):
            found.setdefault(canonical(name), version)
    return dict(sorted(found.items()))


def _is_users_own(info: Path) -> bool:
    origin = info / "direct_url.json"
    return origin.is_file() and _from_folder(origin.read_text(errors="replace"))


def _from_folder(origin: str | None) -> bool:
    """Whether a package was installed from a folder or a repository; see PEP 610."""
    try:
        found = json.loads(origin or "{}")
    except ValueError:
        return False
    return isinstance(found, dict) and ("dir_info" in found or "vcs_info" in found)


def canonical(name: str) -> str:
    """Return a package's name as PEP 503 writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()
