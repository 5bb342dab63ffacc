"""Which tests go to one process together: those of a file, and those that share trainings."""

from __future__ import annotations

from typing import Any

import pytest

OWN_TRAININGS = ("test_exec.py", "test_ranks.py")
"""Files of tests/faults that do not use the laboratory."""


def group_of(nodeid: str) -> str:
    """Its file; one name for all that wait for the trainings of the laboratory."""
    file = nodeid.partition("::")[0]
    shared = file.startswith("tests/faults/") and not file.endswith(OWN_TRAININGS)
    return "tests/faults" if shared else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """By groups, in the order of collection. (xdist's own `loadgroup` marks tests in a way that
    pytest 9.2 does not read.)"""
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return ByGroup(config, log)
