"""Folders for what tools keep between runs, so that no commit uses what another commit built.

Downloads are shared, because a file of a registry or a hub is the same for every commit. Builds are
not: each commit has its own `XDG_CACHE_HOME`, compiled kernels and extensions, and wheels that pip
or uv built. A commit's code is in a new folder, so no `__pycache__` or `build` of another commit is
in it. The canary's own caches of kernels are in the output folder of the commit's runs.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path

BUILDS = {
    "XDG_CACHE_HOME": "xdg",
    "TORCH_EXTENSIONS_DIR": "torch_extensions",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
}
"""Variables of every commit, and their folders."""
ROWS = {"HF_DATASETS_CACHE": "datasets", "HF_MODULES_CACHE": "modules"}
"""Also for a user's command: rows that its code prepared, and copies of a model's own code."""
OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")
"""With one of these, prepared data sets can only come from the shared cache."""
PIP_DOWNLOADS = ("http*",)
UV_DOWNLOADS = ("archive-v*", "wheels-v*", "simple-v*", "flat-index-v*")
TOOLS = (("PIP_CACHE_DIR", "pip", PIP_DOWNLOADS), ("UV_CACHE_DIR", "uv", UV_DOWNLOADS))
"""Variable, default folder and downloads of each installer's cache."""
KERNELS = ("TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


def own_caches(folder: Path, base: Mapping[str, str], *, command: bool) -> dict[str, str]:
    """Return environment variables that keep a commit's builds in `folder`; makes the folder.

    `command`: the canary is a user's command, which may cache rows that its own code prepared.
    """
    shared = Path(base.get("XDG_CACHE_HOME") or Path(base.get("HOME", "~"), ".cache").expanduser())
    own = dict(base)
    # Both would follow XDG_CACHE_HOME, and hold downloads.
    own.setdefault("HF_HOME", str(shared / "huggingface"))
    own.setdefault("TORCH_HOME", str(shared / "torch"))
    wanted = dict(BUILDS)
    if command and not any(base.get(name) for name in OFFLINE):
        wanted |= ROWS
    for variable, name in wanted.items():
        own[variable] = str(folder / name)
        (folder / name).mkdir(parents=True, exist_ok=True)
    for variable, name, downloads in TOOLS:
        cache = _linked(folder / name, Path(base.get(variable) or shared / name), downloads)
        own[variable] = str(cache)
    # Compiled files of a commit stay in its folder, where no other commit looks.
    own.pop("PYTHONPYCACHEPREFIX", None)
    return own


def keep_downloads(own: Mapping[str, str], base: Mapping[str, str]) -> None:
    """Move downloads into the shared caches that had no place for them yet, for the next one.

    `own`: the variables from `own_caches` for `base`.
    """
    shared = Path(base.get("XDG_CACHE_HOME") or Path(base.get("HOME", "~"), ".cache").expanduser())
    for variable, name, downloads in TOOLS:
        place = Path(base.get(variable) or shared / name)
        found = [folder for pattern in downloads for folder in Path(own[variable]).glob(pattern)]
        if any(folder.is_symlink() for folder in found):
            continue
        with contextlib.suppress(OSError):
            place.mkdir(parents=True, exist_ok=True)
            for folder in found:
                if not (place / folder.name).exists():
                    shutil.move(folder, place / folder.name)


def _linked(own: Path, shared: Path, downloads: tuple[str, ...]) -> Path:
    """Make a cache whose downloads are those of a shared cache; all else is its own.

    The first pattern names what the other folders refer to: without it none of them is of use.
    """
    own.mkdir(parents=True, exist_ok=True)
    if not any(shared.glob(downloads[0])):
        return own
    for pattern in downloads:
        for folder in shared.glob(pattern):
            with contextlib.suppress(FileExistsError):
                (own / folder.name).symlink_to(folder.resolve(), target_is_directory=True)
    return own


def compiled(output_dir: Path, environment: Mapping[str, str]) -> int:
    """Count the files of compiled code that a side's runs have left for later runs."""
    folders = [output_dir / ".cache" / name for name in ("inductor", "triton")]
    folders += [Path(environment[name]) for name in KERNELS if environment.get(name)]
    return sum(path.is_file() for folder in folders for path in folder.rglob("*"))
