"""What goes wrong on a new user's first day: one line says what, where, and what to do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from canary.cli import main
from tests.integration.conftest import canary, settings, write_config

IMPORTS = """import sys
def begin():
    import nosuchpackage
begin()
"""


def only_line(err: str) -> str:
    """The one line about the failure."""
    assert "Traceback" not in err, err
    (line,) = [line for line in err.splitlines() if line.startswith("canary: failed")]
    return line


@pytest.fixture
def failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """`canary run` of a command in this process: its exit code and streams."""

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.chdir(tmp_path)
        config = write_config(tmp_path, {"name": "own", "command": list(words)})
        with pytest.raises(SystemExit) as ended:
            main(["run", str(config), "-o", str(tmp_path / "runs")])
        return int(ended.value.code or 0), *capsys.readouterr()

    return run


def test_a_missing_package_is_told_with_its_line_the_python_and_the_log(
    failed: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(IMPORTS)
    _, out, err = failed(sys.executable, "train.py")
    line = only_line(err)
    assert "ModuleNotFoundError: No module named 'nosuchpackage' (at train.py:3 in begin)" in line
    assert f"its Python is {sys.executable}" in line
    log = Path(out.splitlines()[-1]) / "log.txt"
    assert f"see {log})" in line
    assert "nosuchpackage" in log.read_text()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("pythn3", "cannot start pythn3: No such file or directory (give a program on PATH"),
        ("./locked.sh", "cannot start ./locked.sh: Permission denied (give a program on PATH"),
    ],
)
def test_an_interpreter_that_cannot_be_started_is_named(
    name: str, reason: str, failed: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    (tmp_path / "locked.sh").touch()
    code, _, err = failed(name, "train.py")
    assert code == 2
    assert reason in only_line(err)


def test_a_model_that_is_not_there_is_told_before_anything_starts(tmp_path: Path) -> None:
    """No launch: a typo in a path took over a minute, as the hub was asked again and again."""
    (tmp_path / "models" / "llama").mkdir(parents=True)
    config = write_config(tmp_path, settings("sft", model_name="./models/lama"))
    offline = {"HF_ENDPOINT": "http://127.0.0.1:9"}
    done = canary("run", str(config), "-o", str(tmp_path / "out"), cwd=tmp_path, more=offline)
    assert done.code == 2
    assert "did you mean 'models/llama'?" in only_line(done.err)
    assert done.record().launches == []
