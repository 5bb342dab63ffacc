"""Versions of the packages that can change a training. Standard library only."""

from __future__ import annotations

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
