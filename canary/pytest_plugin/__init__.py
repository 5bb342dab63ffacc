"""The pytest plugin: fixtures that train a canary in a test and fail if it got worse.

pytest loads this module in every session, also where nobody uses it. So nothing else of the canary
is imported before a fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from canary.pytest_plugin.asserting import Canary as Canary
from canary.pytest_plugin.asserting import CanaryWarning as CanaryWarning
from canary.pytest_plugin.asserting import Policy, record_of

if TYPE_CHECKING:
    from canary.pytest_plugin.trainings import Trainings
    from canary.record.types import RunRecord

HISTORY = "canary_history"
"""The ini key, and the folder unless one is named."""
SHARED = "canary"
"""Folder of a session's trainings, among the temporary folders of pytest."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and ini keys."""
    group = parser.getgroup("canary", "canary: trainings compared with stored runs")
    group.addoption(
        "--canary-history",
        metavar="DIR",
        help=f"Folder of the history (ini key and default: {HISTORY}).",
    )
    group.addoption(
        "--canary-save",
        action="store_true",
        help="Store runs in the history, unless they fail.",
    )
    group.addoption(
        "--canary-accept",
        metavar="REASON",
        help="Accept changed learning for this reason, and store it: begin a new period.",
    )
    group.addoption(
        "--canary-strict",
        action="store_true",
        help="Fail if inconclusive (ini key: canary_strict).",
    )
    parser.addini(HISTORY, "Folder of the canary's history.", default=HISTORY)
    parser.addini("canary_strict", "Fail if inconclusive.", type="bool", default=False)


def _root(config: pytest.Config) -> Path:
    """Return the folder of pytest's config file; without one, that where pytest was started."""
    return config.inipath.parent if config.inipath is not None else config.invocation_params.dir


@pytest.fixture(scope="session")
def canary_history(pytestconfig: pytest.Config) -> Path:
    """The folder of the history: that of --canary-history or of the ini key canary_history.

    Override it to compare with a history from elsewhere.
    """
    given = pytestconfig.getoption("--canary-history")
    if given is not None:
        return pytestconfig.invocation_params.dir / str(given)
    return _root(pytestconfig) / str(pytestconfig.getini(HISTORY))


@pytest.fixture(scope="session")
def _canary_trainings(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Trainings:
    from canary.pytest_plugin.trainings import Trainings

    root, base = _root(pytestconfig), tmp_path_factory.getbasetemp()
    worker = getattr(pytestconfig, "workerinput", None)
    if worker is not None:
        # A worker of xdist has a folder in that of the session, and no terminal. On another machine
        # all sessions share the folder above it.
        return Trainings(root, base.parent / f"{SHARED}-{worker['testrunuid']}")
    return Trainings(root, base / SHARED, partial(_tell, pytestconfig))


def _tell(config: pytest.Config, line: str) -> None:
    """Print a line although pytest captures output. It is in the middle of a line then."""
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is None or config.getoption("capture") == "no":
        print(line, flush=True)
        return
    with capture.global_and_fixture_disabled():
        print(f"\n{line}", flush=True)


@pytest.fixture(scope="session")
def canary_record(_canary_trainings: Trainings) -> Callable[..., RunRecord]:
    """A function of a config that trains it once per session and returns its record.

    canary_record(config, set=()): `set` has values as for `canary run --set`.
    """
    return record_of(_canary_trainings)


@pytest.fixture
def canary(
    request: pytest.FixtureRequest, _canary_trainings: Trainings, canary_history: Path
) -> Canary:
    """Trains a canary and fails the test if it got worse: canary.assert_no_regression(config)."""
    config = request.config
    policy = Policy(
        test=request.node.nodeid,
        history=canary_history,
        save=config.getoption("--canary-save"),
        accept=config.getoption("--canary-accept"),
        strict=config.getoption("--canary-strict") or config.getini("canary_strict"),
        started_in=config.invocation_params.dir,
        width=config.get_terminal_writer().fullwidth,
    )
    return Canary(_canary_trainings, policy, request.node)
