"""What goes wrong on a new user's first day: one line says what, where, and what to do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.integration.conftest import Finished, canary, settings, write_config

IMPORTS = """import sys
def begin():
    import nosuchpackage
begin()
"""


def only_line(done: Finished) -> str:
    """The one line about the failure."""
    assert "Traceback" not in done.err, done.err
    (line,) = [line for line in done.err.splitlines() if line.startswith("canary: failed")]
    return line


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(IMPORTS)
    return path


def command_config(folder: Path, *words: str) -> Path:
    return write_config(folder, {"name": "own", "command": list(words)})


def test_a_missing_package_is_told_with_its_line_the_python_and_the_log(
    script: Path, tmp_path: Path
) -> None:
    config = command_config(tmp_path, sys.executable, "train.py")
    done = canary("run", str(config), "-o", str(tmp_path / "runs"), cwd=tmp_path)
    line = only_line(done)
    assert f"ModuleNotFoundError: No module named 'nosuchpackage' (at {script.name}:3)" in line
    assert f"its Python is {sys.executable}" in line
    log = done.folder / "log.txt"
    assert f"see {log})" in line
    assert "nosuchpackage" in log.read_text()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "pythn3",
            "cannot start pythn3: No such file or directory (did you mean 'python3'? Or give",
        ),
        ("/nowhere/python", "cannot start /nowhere/python: No such file or directory (did you"),
        ("./locked.sh", "cannot start ./locked.sh: Permission denied (make it executable"),
    ],
)
def test_an_interpreter_that_cannot_be_started_is_named(
    name: str, reason: str, tmp_path: Path
) -> None:
    script = tmp_path / "train.sh"
    script.write_text("no first line that names a program")
    script.chmod(0o755)
    (tmp_path / "locked.sh").touch()
    config = command_config(tmp_path, name, "train.py")
    done = canary("run", str(config), "-o", str(tmp_path / "runs"), cwd=tmp_path)
    assert done.code == 2
    assert reason in only_line(done)


def test_a_model_that_is_not_there_is_told_before_anything_starts(tmp_path: Path) -> None:
    """No launch: a typo in a path took over a minute, as the hub was asked again and again."""
    (tmp_path / "models" / "llama").mkdir(parents=True)
    config = write_config(tmp_path, settings("sft", model_name="./models/lama"))
    offline = {"HF_ENDPOINT": "http://127.0.0.1:9"}
    done = canary("run", str(config), "-o", str(tmp_path / "out"), cwd=tmp_path, more=offline)
    assert done.code == 2
    assert "did you mean 'models/llama'?" in only_line(done)
    assert done.record().launches == []
