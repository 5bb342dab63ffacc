"""Which cases `make test` runs, and which tests share a process: a file, or shared trainings."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks as slow what `spread(n)` leaves out: of a test's many cases, `make test` runs an even
    spread of n."""
    families: dict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if mark := item.get_closest_marker("spread"):
            families[item.nodeid.partition("[")[0], mark.args[0]].append(item)
    for (_, most), family in families.items():
        kept = {place * len(family) // most for place in range(most)}
        for place, item in enumerate(family):
            if place not in kept:
                item.add_marker(pytest.mark.slow)


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
