"""Cells that something else starts, and that are collected afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from canary.cli import app
from canary.errors import UsageError
from canary.matrix.cells import cells_of
from canary.matrix.document import read_matrix
from canary.matrix.matrix import MatrixRequest, load, run
from canary.matrix.plan import planned
from canary.record import jsonio
from tests.unit.comparing import example

runner = CliRunner()


@pytest.fixture
def matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text("training_type: sft\nmax_steps: 5\n")
    file = tmp_path / "matrix.yaml"
    document = {
        "matrix": {"config": ["a.yaml"], "seed": [1, 2]},
        "history": "history",
        "launcher": {"kind": "external"},
    }
    file.write_text(yaml.safe_dump(document))
    return file


def copied(folder: Path, cell: str, code: int = 0) -> Path:
    """What a cell left on its machine."""
    place = folder / "cells" / cell / "1"
    run_folder = place / "runs" / f"20260101-000001-{cell}"
    run_folder.mkdir(parents=True)
    (run_folder / "metrics.json").write_text(
        jsonio.dumps(example().model_copy(update={"name": cell}).model_dump())
    )
    (place / "ended").write_text(str(code))
    (place / "began").write_text("1 there\n")
    for name in ("lock", "log.txt"):
        (place / name).touch()
    document, origins = read_matrix(folder.parent / "matrix.yaml")
    (one,) = (one for one in cells_of(document, origins, folder.parent) if one.name == cell)
    (place / "asked").write_text(planned(one, None).mark)
    return run_folder


def test_it_writes_a_command_for_each_cell(matrix: Path) -> None:
    said = runner.invoke(app, ["matrix", "matrix.yaml", "-o", "out"])
    assert said.stdout.splitlines() == [
        "canary matrix matrix.yaml --only a-1 -o out",
        "canary matrix matrix.yaml --only a-2 -o out",
    ]
    words = ["matrix", "matrix.yaml", "-o", "out", "--format", "json"]
    found = json.loads(runner.invoke(app, words).stdout)
    assert found[1] == {"cell": "a-2", "command": "canary matrix matrix.yaml --only a-2 -o out"}
    # Without a folder each command would choose one of its own, and nothing could be collected.
    assert isinstance(runner.invoke(app, ["matrix", "matrix.yaml"]).exception, UsageError)
    assert not (matrix.parent / "out").exists()


def test_what_was_collected_is_judged_and_what_is_missing_has_failed(
    matrix: Path, tmp_path: Path
) -> None:
    copied(tmp_path / "out", "a-1")
    entries = run(load(MatrixRequest(matrix, tmp_path / "out", collect=True)), lambda going: None)
    outcomes = [one.outcome for one in entries if one.outcome is not None]
    assert [one.verdict for one in outcomes] == ["no-baseline", "error"]
    assert "did the cell run?" in outcomes[1].words


PARTS = {
    "ended": "it left no exit code",
    "metrics.json": "it left no record",
    **{
        name: f"copied in part: {name} is missing" for name in ("asked", "began", "lock", "log.txt")
    },
}


@pytest.mark.parametrize("missing", PARTS)
def test_a_folder_that_was_copied_in_part_has_failed(
    matrix: Path, tmp_path: Path, missing: str
) -> None:
    copied(tmp_path / "out", "a-1")
    (found,) = tmp_path.rglob(missing)
    found.unlink()
    only = ("a-1",)
    request = MatrixRequest(matrix, tmp_path / "out", only, collect=True)
    (entry,) = run(load(request), lambda going: None)
    assert entry.outcome is not None
    assert entry.outcome.verdict == "error"
    assert PARTS[missing] in entry.outcome.words


def test_wrong_calls_are_one_line(matrix: Path) -> None:
    with pytest.raises(UsageError, match="has no cell a-3"):
        load(MatrixRequest(matrix, None, ("a-3",)))
    said = runner.invoke(app, ["matrix", "matrix.yaml", "--collect"])
    assert isinstance(said.exception, UsageError)
    matrix.write_text(matrix.read_text().replace("external", "local"))
    with pytest.raises(UsageError, match="--collect is for"):
        load(MatrixRequest(matrix, Path("out"), collect=True))


def test_a_cell_that_has_changed_since_it_ran_has_no_old_answer(
    matrix: Path, tmp_path: Path
) -> None:
    place = copied(tmp_path / "out", "a-1").parents[1]
    request = MatrixRequest(matrix, tmp_path / "out", ("a-1",), collect=True)
    loaded = load(request)
    (place / "asked").write_text(loaded.marks[loaded.cells[0].name])
    (entry,) = run(loaded, lambda going: None)
    assert entry.outcome is not None
    assert entry.outcome.verdict == "no-baseline"
    (tmp_path / "a.yaml").write_text("training_type: sft\nmax_steps: 6\n")
    (entry,) = run(load(request), lambda going: None)
    assert entry.outcome is not None
    assert (entry.outcome.verdict, entry.outcome.words) == (
        "invalid",
        "it was run with another config or command",
    )
