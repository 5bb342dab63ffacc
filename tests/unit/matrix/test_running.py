"""Which cells of a matrix run, and which cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from canary.cli import app

MATRIX: dict[str, Any] = {
    "verb": "exec",
    "stacks": {"broken": {"python": "no/python"}},
    "cells": [
        {"name": "runs", "command": "sh -c 'exit 3'"},
    ],
    "launcher": {"devices": "cpu"},
}
WITHOUT_A_PLACE = [
    {"name": "no-stack", "command": "true", "stack": "broken"},
    {"name": "no-place", "command": "true", "ranks": 64},
    {"name": "no-gpu", "command": "true", "device": "h100"},
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ran(folder: Path, *words: str) -> dict[str, tuple[str, str]]:
    """Run the matrix; return verdict and message of each cell."""
    (folder / "m.yaml").write_text(yaml.safe_dump(MATRIX))
    words = ("matrix", "m.yaml", "-o", "out", "-q", "--format", "json", *words)
    told = json.loads(CliRunner().invoke(app, words).stdout)
    return {one["cell"]: (one["verdict"], one["message"]) for one in told["cells"]}


def test_a_cell_without_a_place_holds_up_no_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MATRIX, "cells", [*MATRIX["cells"], *WITHOUT_A_PLACE])
    found = ran(folder)
    assert found["runs"][0] == "error"
    for cell, said in (
        ("no-stack", "no program at"),
        ("no-place", "it needs 64 cores, and"),
        ("no-gpu", "it asks for the device h100"),
    ):
        assert found[cell][0] == "invalid", cell
        assert said in found[cell][1]


def test_one_cell_alone_leaves_the_answer_of_all(folder: Path) -> None:
    ran(folder)
    whole = (folder / "out" / "matrix.json").read_text()
    assert [*ran(folder, "--only", "runs")] == ["runs"]
    assert (folder / "out" / "matrix.json").read_text() == whole


def test_a_folder_answers_only_for_the_cell_that_ran_in_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran(folder)
    changed = [{**MATRIX["cells"][0], "command": "sh -c 'exit 4'"}]
    monkeypatch.setitem(MATRIX, "cells", changed)
    verdict, message = ran(folder)["runs"]
    assert verdict == "invalid"
    assert "with another config or command" in message
    assert "remove cells/runs" in message


@pytest.mark.parametrize("device", ["gpu", "cluster"])
def test_a_cell_that_wants_a_gpu_does_not_train_without_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    cells = [{"name": "one", "verb": "exec", "command": "true", "device": device}]
    monkeypatch.setitem(MATRIX, "cells", cells)
    assert ran(folder)["one"][0] == "invalid"
