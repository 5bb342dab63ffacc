"""Tests that need a CUDA device; skipped with the reason where there is none.

Those that take the fixture `device` run on a CPU too where `CANARY_GPU_TESTS_DEVICE=cpu` asks for
it: what they check of a device is left out there, and all else is tried.
"""

from __future__ import annotations

import os

import pytest

from tests.gpu.trainings import Trainings

ASKED = os.environ.get("CANARY_GPU_TESTS_DEVICE", "cuda")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without a device, skips what needs one."""
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
        portable = ASKED == "cpu" and "device" in getattr(item, "fixturenames", ())
        if "tests/gpu" in item.path.as_posix() and not portable:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def device() -> str:
    """What the tests train on."""
    return ASKED


@pytest.fixture(scope="session")
def trainings(device: str, tmp_path_factory: pytest.TempPathFactory) -> Trainings:
    """Trainings, each run once, when it is first asked for."""
    return Trainings(device, tmp_path_factory.mktemp("trainings"))
