"""On a full disk nothing is written by halves, and the exit code is 4."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from canary.cli import main


@pytest.fixture
def third_is_full(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The disk is full from the third file on."""
    synced: list[int] = []

    def full(handle: int) -> None:
        synced.append(handle)
        if len(synced) >= 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    return synced


def test_init_writes_all_or_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    third_is_full: list[int],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["init", "--nightly"])
    assert ended.value.code == 4
    assert "No space left on device (free some space" in capsys.readouterr().err
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("words", ["run mine.yaml", "exec -- true", "import mine.csv"])
@pytest.mark.parametrize("part", ["write_bytes", "chmod"])
def test_a_run_without_a_record_leaves_nothing(
    words: str, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, third_is_full: list[int]
) -> None:
    monkeypatch.chdir(tmp_path)
    third_is_full += [0, 0]
    Path("mine.yaml").write_text("command: ['true']\n")
    Path("mine.csv").write_text("step,loss\n1,2.0\n")
    monkeypatch.setattr(Path, part, lambda *_: os.fsync(0))
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 4
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["mine.csv", "mine.yaml"]


def test_a_config_that_cannot_be_replaced_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], third_is_full: list[int]
) -> None:
    third_is_full += [0, 0]
    file = tmp_path / "canary.yaml"
    file.write_text("mine\n")
    with pytest.raises(SystemExit) as ended:
        main(["init", str(file), "--force"])
    assert ended.value.code == 4
    assert f"cannot write {file}: No space left" in capsys.readouterr().err
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [
        ("canary.yaml", "mine\n")
    ]
