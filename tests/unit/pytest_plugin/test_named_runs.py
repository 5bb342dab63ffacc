"""Which run a training leaves: its own, not one that its output names."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import canary.pytest_plugin.trainings as of_plugin
from canary.errors import MachineError
from canary.machine.pool import all_devices
from canary.pytest_plugin.trainings import Trainings
from canary.record.folder import load_record
from canary.runner.exec.entry import ExecRequest
from tests.unit.comparing import record, write
from tests.unit.pytest_plugin.conftest import ROOT

KILLED = "os.kill(os.getpid(), 9)"
REFUSED = "say('canary: cannot write canary_output: No space left on device'); sys.exit(4)"
LEFT = "say('record: own'); sys.exit(3)"
"""What `canary exec` does after the command's output; 3 is the command's code."""


@pytest.fixture(autouse=True)
def _own_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locks = tmp_path / "devices.lock"
    monkeypatch.setattr(of_plugin, "all_devices", lambda _: all_devices(print, locks))
    (tmp_path / "shared").mkdir()


@pytest.fixture
def ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """The run of a command that prints the line of an old run, where the canary ends so."""
    for name in ("old", "own"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "metrics.json", record(100))

    def run(ending: str) -> Path:
        says = "import os, sys\nsay = lambda line: print(line, file=sys.stderr, flush=True)\n"
        script = f"{says}say('record: old')\n{ending}"
        monkeypatch.setattr(of_plugin, "PROGRAM", (sys.executable, "-c", script))
        monkeypatch.chdir(tmp_path)
        trainings = Trainings(tmp_path, tmp_path / "shared")
        return trainings.of_command(ExecRequest(("python", "train.py")))

    return run


@pytest.mark.parametrize("ending", [KILLED, REFUSED], ids=["killed", "refused"])
def test_a_line_of_the_command_names_no_run(ending: str, ends: Callable[[str], Path]) -> None:
    with pytest.raises(MachineError, match="left no record"):
        ends(ending)


def test_the_last_line_names_the_run_though_the_command_failed(
    ends: Callable[[str], Path],
) -> None:
    assert ends(LEFT) == Path("own")


def test_a_file_of_the_project_hides_no_module_of_the_canary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "typer.py").write_text("raise SystemExit('record: old')\n")
    (tmp_path / "old").mkdir()
    write(tmp_path / "old" / "metrics.json", record(100))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    request = ExecRequest((sys.executable, "-c", "print(1)"), settings=("look_steps=0",))
    run = Trainings(tmp_path, tmp_path / "shared").of_command(request)
    assert run.name != "old"
    assert load_record(run).status == "failed", "it trained nothing"


def test_a_training_has_the_variables_of_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Coverage in the training would make it slower than one that was started by hand."""
    for name in ("COV_CORE_SOURCE", "COVERAGE_PROCESS_START", "PYTEST_XDIST_WORKER"):
        monkeypatch.setenv(name, "x")
    (tmp_path / "healthy.yaml").write_text("name: healthy\n")
    script = "import os, sys; sys.exit(' '.join(sorted(os.environ)))"
    monkeypatch.setattr(of_plugin, "PROGRAM", (sys.executable, "-c", script))
    with pytest.raises(MachineError, match="PATH") as raised:
        Trainings(tmp_path, tmp_path / "shared").of_config("healthy.yaml", ())
    for name in ("PYTEST_", "COV_CORE_", "COVERAGE_"):
        assert name not in str(raised.value)
