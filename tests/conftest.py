"""Which cases `make test` runs, until when the others may start, and which tests share a process: a
file, or shared trainings."""

from __future__ import annotations

import compileall
import functools
import os
import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Tests run side by side, one per core. Threads of torch would wait for each other by spinning.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks as slow what `spread(n)` leaves out: of a test's many cases, `make test` runs an even
    spread of n. There, what one process has to run as a whole begins first."""
    if config.option.markexpr in EVERY_DAY:
        items.sort(key=lambda item: not item.nodeid.startswith(FOLDERS))
    families: dict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if mark := item.get_closest_marker("spread"):
            families[item.nodeid.partition("[")[0], mark.args[0]].append(item)
    for (_, most), family in families.items():
        kept = {place * len(family) // most for place in range(most)}
        for place, item in enumerate(family):
            if place not in kept:
                item.add_marker(pytest.mark.slow)


def pytest_configure(config: pytest.Config) -> None:
    """Compiles the canary once. Where PYTHONDONTWRITEBYTECODE is set, each of the hundreds of
    processes that these tests start would do it again, a second of a core each."""
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(Path(__file__).parents[1] / "canary", quiet=2)


EVERY_DAY = {
    *("end_to_end or not (train or slow)", "not (end_to_end or train or slow)", "end_to_end"),
}
"""What `make test` and its halves select."""
RARE = re.compile(r"^pytestmark = .*\bmark\.(?:train|slow)\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves files unread of which `make test` runs nothing: what they import to train takes a
    process seconds."""
    if config.option.markexpr not in EVERY_DAY or collection_path.suffix != ".py":
        return None
    text = collection_path.read_text(encoding="utf-8")
    return True if RARE.search(text) and "end_to_end" not in text else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keeps the tests as compiled. Pytest compiles them anew, 20 s of a core per process, where
    nothing is kept. What a test itself imports is kept only where that is usual."""
    usual, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    try:
        yield
    finally:
        sys.dont_write_bytecode = usual


DEADLINE = "TEST_DEADLINE"
"""Variable with a time in seconds since 1970. After it, only what `make test` runs still starts."""
NO_TIME = f"{DEADLINE} has passed"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a rare or a long test that would start too late, before its fixtures train."""
    rare = item.get_closest_marker("train") or item.get_closest_marker("slow")
    if rare and not item.get_closest_marker("end_to_end"):
        deadline = os.environ.get(DEADLINE)
        if deadline and time.time() > float(deadline):
            pytest.skip(NO_TIME)


@pytest.fixture(scope="session", autouse=True)
def one_command_line() -> Iterator[None]:
    """typer builds all commands again for each call, 0.1 s of a core. Here it builds them once per
    process."""
    import typer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", functools.cache(typer.main.get_command))
        yield


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Says how many tests were left out for want of time, and where."""
    late = [
        one.nodeid
        for one in terminalreporter.stats.get("skipped", ())
        if NO_TIME in str(one.longrepr)
    ]
    if late:
        files = sorted({one.partition("::")[0] for one in late})
        terminalreporter.write_line(
            f"{len(late)} tests not run, because {NO_TIME}: {', '.join(files)}"
        )


OWN_TRAININGS = ("test_exec.py", "test_ranks.py")
"""Files of tests/faults that do not use the laboratory."""


FOLDERS = ("tests/unit/training/", "tests/github/", "tests/browser/")
"""Folders whose tests share what takes a process long to load: torch's compiler and trl, GitHub's
description of its interface, a browser."""
CLUSTERS = ("tests/integration/matrix/test_slurm", "tests/integration/matrix/test_ray")
"""Files that share a cluster begin so."""


def group_of(nodeid: str) -> str:
    """Its file; one name for all that wait for the trainings of the laboratory, for a cluster, or
    for what a folder shares."""
    file = nodeid.partition("::")[0]
    for shared in (*FOLDERS, *CLUSTERS):
        if file.startswith(shared):
            return shared
    in_laboratory = file.startswith("tests/faults/") and not file.endswith(OWN_TRAININGS)
    return "tests/faults" if in_laboratory else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """By groups, in the order of collection. (xdist's own `loadgroup` marks tests in a way that
    pytest 9.2 does not read.)"""
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return ByGroup(config, log)
