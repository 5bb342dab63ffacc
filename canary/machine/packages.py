"""Versions of the packages that can change a training. Standard library only."""

from __future__ import annotations

import json
import re
from importlib import metadata

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


def package_versions() -> dict[str, str | None]:
    """Return the installed version of each package; None if it is not installed."""
    versions: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return versions


def installed_packages() -> dict[str, str]:
    """Return the version of every package of this Python, by its name as PEP 503 writes it.

    Packages that run from a folder or a repository are left out: their code is the user's.
    """
    found: dict[str, str] = {}
    for package in metadata.distributions():
        described = package.metadata
        name, version = described["Name"], described["Version"]
        if name and version and not _is_users_own(package):
            found.setdefault(canonical(name), version)
    return dict(sorted(found.items()))


def _is_users_own(package: metadata.Distribution) -> bool:
    """Whether a package was installed from a folder or a repository; see PEP 610."""
    try:
        origin = json.loads(package.read_text("direct_url.json") or "{}")
    except ValueError:
        return False
    return isinstance(origin, dict) and ("dir_info" in origin or "vcs_info" in origin)


def canonical(name: str) -> str:
    """Return a package's name as PEP 503 writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()
