"""Where the trackers of the ladder's launches write: TensorBoard overlays levels side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from canary.campaign.side import Side
from canary.config.load import load_config
from canary.errors import MachineError
from canary.ladder.launching import RunProcesses


def environment(
    folder: Path, label: str, monkeypatch: pytest.MonkeyPatch, **given: str
) -> dict[str, str]:
    seen: list[dict[str, str]] = []

    def run_with(side: Side, settings: list[str], heard: object) -> None:
        seen.append(dict(side.environment))
        raise MachineError("not started")

    monkeypatch.setattr(Side, "run_with", run_with)
    config = load_config(None).config
    launcher = RunProcesses(None, (), config, folder, {"PATH": "/bin", **given}, lambda line: None)
    assert launcher.timed(label, {}).problem
    return seen[0]


def test_a_launch_knows_its_level_and_the_folder_of_all_levels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = environment(tmp_path, "trl's own", monkeypatch)
    assert found["CANARY_LADDER_LEVEL"] == "trl's_own"
    assert found["TENSORBOARD_LOGGING_DIR"] == str(tmp_path / "tensorboard")
    assert found["PATH"] == "/bin"


def test_the_users_own_folder_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = environment(tmp_path, "basic", monkeypatch, TENSORBOARD_LOGGING_DIR="/logs")
    assert found["TENSORBOARD_LOGGING_DIR"] == "/logs"
