"""What the demo says last: each command is typed as it stands, and works."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from canary.campaign.demo import FAULT, Demo, demo_text, typed_as
from canary.cli import app
from canary.compare.report import Comparison
from canary.config.load import load_config

EXAMPLES = Path(__file__).parents[3] / "baselines" / "examples" / "explained"
START = "from canary.cli import main; main()"


def record(name: str, folder: Path) -> Path:
    folder.mkdir(parents=True)
    shutil.copy(EXAMPLES / f"{name}.json", folder / "metrics.json")
    return folder


@pytest.fixture
def program(tmp_path: Path) -> str:
    """The program of a virtual environment that is not activated, in a folder with a space."""
    place = tmp_path / "my venv" / "bin" / "canary"
    place.parent.mkdir(parents=True)
    place.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -c '{START}' \"$@\"\n")
    place.chmod(0o755)
    return typed_as(str(place))


@pytest.fixture
def commands(tmp_path: Path, program: str) -> dict[str, str]:
    """The commands of the last words by their verb."""
    folder = tmp_path / "my runs" / "demo-1"
    record("baseline", folder / "base" / "20260101-000000-dpo_smoke-aaaa")
    faulty = record("current", folder / FAULT / "20260101-000001-dpo_smoke-bbbb")
    answer = Comparison("pass", "Pass.")
    text = demo_text(Demo(answer, answer, folder, faulty), "", program)
    lines = text.partition("== What next")[2].splitlines()
    typed = [line.strip() for line in lines if line.startswith("  ")]
    assert all(line.startswith(program) for line in typed)
    return {line.removeprefix(program).split()[0]: line for line in typed}


def type_in(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    return subprocess.run(
        ["bash", "-c", line], cwd=folder, capture_output=True, text=True, timeout=500
    )


def test_compare_finds_both_sides_from_another_folder(
    commands: dict[str, str], tmp_path: Path
) -> None:
    done = type_in(commands["compare"], tmp_path / "elsewhere")
    assert done.returncode == 0, done.stderr
    assert "Summary" in done.stdout


def test_the_config_to_compare_with_is_written(commands: dict[str, str], tmp_path: Path) -> None:
    place = tmp_path / "my project"
    wrote = type_in(commands["init"], place)
    assert wrote.returncode == 0, wrote.stderr
    assert load_config(place / "canary.yaml").config.command == ("python", "train.py")


def test_those_that_train_are_commands_that_there_are(commands: dict[str, str]) -> None:
    """Parsed, and not run here."""
    verbs = get_command(app).commands  # type: ignore[attr-defined]

    def given(name: str) -> dict[str, object]:
        found = verbs[name].make_context(name, shlex.split(commands[name])[2:])
        params: dict[str, object] = found.params
        return params

    assert given("ab")["config"] == Path("canary.yaml")
    assert given("exec")["command"] == ["python", "train.py"]


def test_the_program_is_named_as_it_can_be_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "bin" / "canary"
    place.parent.mkdir()
    place.write_text("#!/bin/sh\n")
    place.chmod(0o755)
    monkeypatch.setenv("PATH", str(place.parent))
    assert typed_as(str(place)) == "canary"
    assert typed_as("canary") == "canary"
    assert typed_as("/a b/__main__.py") == f"{shlex.quote(sys.executable)} -m canary"
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.chdir(tmp_path)
    assert typed_as("bin/canary") == str(place)
