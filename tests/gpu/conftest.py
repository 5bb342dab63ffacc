"""Tests that need a CUDA device; skipped with the reason where there is none."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks and, without a device, skips everything in this folder."""
    import torch

    if torch.cuda.is_available():
        return
    built = torch.version.cuda
    reason = (
        f"this torch ({torch.__version__}) is built without CUDA"
        if built is None
        else f"torch is built for CUDA {built} and sees no device"
    )
    for item in items:
        if "tests/gpu" in item.path.as_posix():
            item.add_marker(pytest.mark.skip(reason=reason))
