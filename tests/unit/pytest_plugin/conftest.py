"""A team's project that tests its canaries with pytest; nothing trains in it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from canary.baseline.history import save
from canary.compare.stats import load_metrics
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
        self.history = pytester.path / "canary_history"
        self.before: list[str] = []
        """What was stored at first."""

    def config(self, name: str, whole: RunRecord | None = None) -> None:
        """Write a config whose training leaves this record, or none."""
        (self.path / f"{name}.yaml").write_text(f"name: {name}\n")
        if whole is not None:
            write(self.path / f"{name}.json", whole)

    def store(self, records: Sequence[RunRecord]) -> None:
        for one in records:
            save(self.history, one)

    def run(self, *words: str) -> pytest.RunResult:
        """Run pytest in a process of its own."""
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


@pytest.fixture
def bare(
    pytester: pytest.Pytester,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> pytest.Pytester:
    """A project in which the plugin is installed, and that does not use it."""
    site = plugged(tmp_path_factory.mktemp("plugin") / "site")
    monkeypatch.setenv("PYTHONPATH", f"{site}:{ROOT}", prepend=":")
    monkeypatch.setenv("COLUMNS", "80")
    # The devices of the machine may be held by others for long; these trainings need none.
    monkeypatch.setenv("TMPDIR", str(site))
    pytester.makeini("[pytest]\n")
    return pytester


@pytest.fixture
def team(bare: pytest.Pytester) -> Team:
    """A project whose history has runs of `sft_smoke` and of the README's script, `train`."""
    bare.makeconftest(CONFTEST)
    made = Team(bare)
    made.config("healthy", record(100))
    made.config("noisy", record(100).model_copy(update={"name": "noisy"}))
    made.config("first", record(100).model_copy(update={"name": "first"}))
    made.config("broken", crashed(record(100)))
    made.config("nothing")
    (made.path / "misspelt.yaml").write_text("name: misspelt\nmax_step: 3\n")
    made.config("masked", load_metrics(OWN_SCRIPT / "current.json"))
    good = load_metrics(OWN_SCRIPT / "baseline.json")
    write(made.path / "good.json", good)
    made.store(history(count=6))
    made.store([one.model_copy(update={"name": "noisy"}) for one in history(NOISY, 3)])
    made.before = made.stored()
    return made
