"""Which tests go to one process together: those of a file, and those that share trainings."""

from __future__ import annotations

import pytest

SHARED = ("laboratory", "finished_run")
"""Fixtures of a session, each worth minutes of training."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Groups for `--dist loadgroup`: a fixture that trains must not be made by every process."""
    for item in items:
        names = getattr(item, "fixturenames", ())
        group = next((name for name in SHARED if name in names), item.nodeid.split("::")[0])
        item.add_marker(pytest.mark.xdist_group(group))
