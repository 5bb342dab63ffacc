"""Trainings of a session: shared, one at a time, ended with it; and sessions without any."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from tests.unit.comparing import record
from tests.unit.pytest_plugin.conftest import CONFTEST, OTHERS, Team, without
from tests.unit.pytest_plugin.stand_in import SECONDS

pytest_plugins = ["pytester"]

SHARED = """
import pytest

@pytest.mark.parametrize("config", {configs})
def test_a(canary, canary_record, config):
    found = canary.assert_no_regression(f"{{config}}.yaml")
    assert found.current.run_ids == (canary_record(f"{{config}}.yaml").run_id,)
    assert found.verdict == "pass"
"""


def test_workers_share_trainings_and_never_train_at_once(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each worker begins with its half of the tests; both need both trainings."""
    team.config("again", record(100))
    monkeypatch.setenv(SECONDS, "0.5")
    team.pytester.makepyfile(SHARED.format(configs=["healthy", "again", "again", "healthy"]))
    team.run_workers("-n2").assert_outcomes(passed=4)
    assert [one["what"] for one in team.trainings()] == ["begins", "ends"] * 2


def test_another_value_or_variable_is_another_training(team: Team) -> None:
    team.pytester.makepyfile(
        "from pathlib import Path\n"
        "def test_a(canary, monkeypatch):\n"
        "    def run(): return canary.assert_no_regression('healthy.yaml').current.run_ids\n"
        "    first = run()\n"
        "    assert run() == first\n"
        "    monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '1')\n"
        "    second = run()\n"
        "    Path('healthy.yaml').write_text('name: healthy\\nseed: 3\\n')\n"
        "    assert len({first, second, run()}) == 3\n"
    )
    team.run().assert_outcomes(passed=1)


@pytest.fixture
def pytest_at_work(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[subprocess.Popen[str], psutil.Process]]:
    """A session, and the process that trains in it."""
    monkeypatch.setenv(SECONDS, "60")
    team.pytester.makeconftest(CONFTEST)
    team.pytester.makepyfile('def test_a(canary): canary.assert_no_regression("healthy.yaml")')
    words = [sys.executable, "-m", "pytest", *without((*OTHERS, "xdist"))]
    with subprocess.Popen(
        words, cwd=team.path, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as session:
        end = time.monotonic() + 60
        while not team.trainings() and time.monotonic() < end:
            time.sleep(0.02)
        (training,) = psutil.Process(session.pid).children(recursive=True)
        yield session, training
        session.kill()
        if training.is_running():
            training.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_training_outlives_its_session(
    pytest_at_work: tuple[subprocess.Popen[str], psutil.Process], number: signal.Signals
) -> None:
    session, training = pytest_at_work
    if number == signal.SIGINT:  # Ctrl-C: to all processes of the terminal.
        os.killpg(session.pid, number)
    else:
        session.send_signal(number)
    out, _ = session.communicate(timeout=60)
    training.wait(30)
    assert session.returncode == (2 if number == signal.SIGINT else -number)
    assert "KeyboardInterrupt" in out or number != signal.SIGINT
    assert "Traceback" not in out


UNUSED = """
import sys

HEAVY = ("torch", "pydantic", "jinja2", "yaml", "psutil")

def pytest_sessionfinish(session):
    loaded = sorted(name for name in sys.modules if name.split(".")[0] == "canary")
    assert loaded == ["canary", "canary.pytest_plugin", "canary.pytest_plugin.asserting"], loaded
    assert not [name for name in HEAVY if name in sys.modules]
"""


def test_a_session_that_does_not_use_it_imports_nothing_more(bare: pytest.Pytester) -> None:
    bare.makeconftest(UNUSED)
    bare.makepyfile("def test_a(): pass")
    # Other plugins may import what the canary would.
    others = without((*OTHERS, "xdist"))
    shown = bare.runpytest_subprocess(*others, "--canary-save", "--canary-history=h")
    assert shown.ret == 0, shown.stdout.str()
    shown.assert_outcomes(passed=1)


def test_names_of_the_project_come_first_and_it_can_be_switched_off(team: Team) -> None:
    team.pytester.makepyfile(
        test_own="import pytest\n"
        "@pytest.fixture\n"
        "def canary(): return 'ours'\n"
        "def test_own(canary): assert canary == 'ours'\n",
        test_history="import pytest\n"
        "@pytest.fixture(scope='session')\n"
        "def canary_history(): return __import__('pathlib').Path('fetched')\n"
        "def test_fetched(canary):\n"
        "    assert canary.assert_no_regression('healthy.yaml').verdict == 'no-baseline'\n",
        test_other="def test_other(canary_history): assert canary_history.name == 'h'\n",
    )
    team.run("--canary-history=h").assert_outcomes(passed=3, warnings=1)
    off = team.run("-p", "no:canary", "test_other.py")
    off.stdout.fnmatch_lines(["*fixture 'canary_history' not found"])
