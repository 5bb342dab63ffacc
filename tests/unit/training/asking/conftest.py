"""Tests in which the garbage collector sees a process of the size of a training's."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def small_process() -> Iterator[None]:
    """Inspectors walk all objects of the process. Those of pytest and of other tests are hidden."""
    gc.freeze()
    yield
    gc.unfreeze()
