"""A team's project that tests its canaries with pytest; nothing trains in it."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import canary.pytest_plugin.trainings as of_plugin
from canary.baseline.history import save
from canary.compare.stats import load_metrics
from canary.machine.pool import all_devices
from canary.pytest_plugin import HISTORY
from canary.pytest_plugin.answers import Answer as Answer  # in-process sessions import no more
from canary.record.types import RunRecord
from tests.unit.comparing import crashed, history, record, write
from tests.unit.pytest_plugin import stand_in

ROOT = Path(__file__).parents[3]
OWN_SCRIPT = ROOT / "baselines" / "examples" / "own_script"
CONFTEST = f"""
import sys

import canary.pytest_plugin.trainings as trainings

trainings.PROGRAM = (sys.executable, {stand_in.__file__!r})
"""
"""For a session in a process of its own."""
NOISY = 0.3
"""Scatter of step times in which no change of speed can be judged."""


OTHERS = ("hypothesispytest", "anyio", "platformdirs", "timeout")
"""Plugins that are installed beside ours, and take most of a session's time."""


def without(plugins: Sequence[str]) -> list[str]:
    """The options that leave plugins out."""
    return [word for name in plugins for word in ("-p", f"no:{name}")]


class Team:
    """A project with configs, each with the record that its training leaves."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path
        self.history = pytester.path / HISTORY
        self.before = self.stored()
        """What was stored at first."""

    def config(self, name: str, whole: RunRecord) -> None:
        """Write a config whose training leaves this record."""
        (self.path / f"{name}.yaml").write_text(f"name: {name}\n")
        write(self.path / f"{name}.json", whole)

    def run(self, *words: str) -> pytest.RunResult:
        """Run pytest in this process."""
        return self.pytester.runpytest_inprocess(*without((*OTHERS, "xdist")), *words)

    def run_workers(self, *words: str) -> pytest.RunResult:
        """Run pytest with workers, in processes of their own, as trainings are then."""
        self.pytester.makeconftest(CONFTEST)
        return self.pytester.runpytest_subprocess(*without(OTHERS), *words, timeout=240)

    def trainings(self) -> list[dict[str, object]]:
        """What the stand-in noted, in order."""
        log = self.path / stand_in.LOG
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def stored(self) -> list[str]:
        return sorted(path.name for path in self.history.glob("v2/*/*/*.json"))


def plugged(site: Path) -> Path:
    """Make a folder with the metadata of an installed package: the entry points of this one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = site / "rlhf_canary_entry_points-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rlhf-canary-entry-points\n")
    points = project["entry-points"]["pytest11"]
    lines = ["[pytest11]", *(f"{name} = {place}" for name, place in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return site


Child = tuple[int, str, str]


def start_here(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], *files: int
) -> Child:
    """Run the stand-in in this process."""
    words = command[list(command).index(stand_in.__file__) + 1 :]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = stand_in.main(list(words))
    return code, out.getvalue(), err.getvalue()


@pytest.fixture
def bare(
    pytester: pytest.Pytester,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> pytest.Pytester:
    """A project in which the plugin is installed, and that does not use it."""
    site = plugged(tmp_path_factory.mktemp("plugin") / "site")
    monkeypatch.setenv("PYTHONPATH", f"{site}:{ROOT}", prepend=":")
    pytester.syspathinsert(site)
    monkeypatch.setenv("COLUMNS", "80")
    # The devices of the machine may be held by others for long; these trainings need none.
    monkeypatch.setenv("TMPDIR", str(site))
    pytester.makeini("[pytest]\n")
    return pytester


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a project whose history has runs of `sft_smoke` and of the README's script,
    `train`."""
    made = tmp_path_factory.mktemp("team") / "project"
    made.mkdir()

    def config(name: str, whole: RunRecord) -> None:
        (made / f"{name}.yaml").write_text(f"name: {name}\n")
        write(made / f"{name}.json", whole)

    config("healthy", record(100))
    config("noisy", record(100).model_copy(update={"name": "noisy"}))
    config("first", record(100).model_copy(update={"name": "first"}))
    config("broken", crashed(record(100)))
    config("masked", load_metrics(OWN_SCRIPT / "current.json"))
    (made / "nothing.yaml").write_text("name: nothing\n")
    (made / "misspelt.yaml").write_text("name: misspelt\nmax_step: 3\n")
    write(made / "good.json", load_metrics(OWN_SCRIPT / "baseline.json"))
    noisy = [one.model_copy(update={"name": "noisy"}) for one in history(NOISY, 3)]
    for one in (*history(count=6), *noisy):
        save(made / HISTORY, one)
    return made


@pytest.fixture
def team(
    bare: pytest.Pytester, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Team:
    """The project. Its trainings are no processes, unless pytest is one."""
    locks = tmp_path / "devices.lock"
    monkeypatch.setattr(of_plugin, "PROGRAM", (sys.executable, stand_in.__file__))
    monkeypatch.setattr(of_plugin, "all_devices", lambda waits: all_devices(waits, locks))
    monkeypatch.setattr(of_plugin, "start_child", start_here)
    monkeypatch.setattr(of_plugin, "finish_child", lambda child: child)
    shutil.copytree(project, bare.path, dirs_exist_ok=True)
    return Team(bare)
