"""What the folder of a cell may hold if a stranger filled it."""

from __future__ import annotations

import fcntl
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from canary.baseline.history import VERSION
from canary.errors import ConfigError, MachineError
from canary.matrix import outcomes
from canary.matrix.answer import View, answer_of, answer_text
from canary.matrix.attempt import Attempt
from canary.matrix.cells import Cell
from canary.matrix.document import Slurm, read_matrix
from canary.matrix.local import LocalLauncher
from canary.matrix.outcomes import Outcome, outcome_of
from canary.matrix.running import CELLS, Entry, Matrix
from canary.matrix.slurm import SlurmQueue
from canary.record import jsonio
from tests.unit.comparing import example
from tests.unit.matrix.test_outcomes import left

HOST = socket.gethostname()
DEAD = {"status": "running", "owner": {"pid": 4_000_000, "started": 1.0, "host": HOST}}
"""A record of a process that is gone."""


def leave(folder: Path, **record: Any) -> Path:
    """Leave a run of the cell `one` in the folder of a try; return the run's folder."""
    place = folder / "runs" / "20260101-000001-one"
    place.mkdir(parents=True)
    document = example().model_copy(update={"name": "one"}).model_dump() | record
    (place / "metrics.json").write_text(jsonio.dumps(document))
    return place


def collected(
    folder: Path, code: int = 0, verb: Any = "run", history: Path | None = None, **record: Any
) -> Outcome:
    """Judge a try of the cell `one`, with a record."""
    leave(folder, **record)
    cell, attempt = left(folder, verb, code)
    return outcome_of(cell, attempt, history, save_to=history is not None)


@pytest.mark.parametrize("name", ["other", "..", "", "a\x1b[2J"])
def test_a_record_of_another_canary_is_no_answer_and_is_not_stored(
    tmp_path: Path, name: str
) -> None:
    found = collected(tmp_path, history=tmp_path / "history", name=name)
    assert found.verdict == "error"
    assert "its record is of the canary" in found.words
    assert not (tmp_path / "history").exists()


def test_a_run_of_the_future_is_not_stored_and_that_is_said(tmp_path: Path) -> None:
    """It would stay the newest run of the history for ever."""
    history = tmp_path / "history"
    found = collected(tmp_path, history=history, timestamp="9999-12-31T23:59:59+00:00")
    assert found.verdict == "no-baseline"
    assert "Not saved: run " in found.words
    assert "more than a day from now" in found.words
    assert not [*history.rglob("*.json")]


@pytest.mark.parametrize("seconds", ["inf", "nan", -5.0, 1e12])
def test_a_forged_duration_is_no_answer(tmp_path: Path, seconds: object) -> None:
    found = collected(tmp_path, history=tmp_path / "history", duration_seconds=seconds)
    assert found.verdict == "error"
    assert not (tmp_path / "history").exists()


@pytest.mark.parametrize(
    "record",
    [
        {"timestamp": "0001-01-01T00:00:00+14:00"},
        {"env": {"cpu": "x" * 400, "gpus": []}},
        {"env": {"gpus": [{"memory_bytes": "inf"}], "device": {"type": "cuda"}}},
    ],
)
def test_a_record_that_breaks_the_reader_is_an_error_of_its_cell(
    tmp_path: Path, record: dict[str, Any]
) -> None:
    (tmp_path / "history" / VERSION).mkdir(parents=True)
    found = collected(tmp_path, history=tmp_path / "history", **record)
    assert found.verdict in ("error", "pass")


def test_an_answer_of_a_command_that_failed_is_none(tmp_path: Path) -> None:
    """Another cell can have planted it."""
    place = tmp_path / "check" / "x"
    place.mkdir(parents=True)
    (place / "metrics.json").write_text(jsonio.dumps(example().model_dump()))
    assert outcome_of(*left(tmp_path, "check", 4), None, save_to=False).verdict == "error"
    assert outcome_of(*left(tmp_path, "check", 0), None, save_to=False).verdict == "pass"


@pytest.mark.parametrize("which", ["cells", "cells/one"])
def test_a_folder_that_is_a_link_is_refused(tmp_path: Path, which: str) -> None:
    precious = tmp_path / "precious"
    (precious / "one").mkdir(parents=True)
    link = tmp_path / "matrix" / which
    link.parent.mkdir(parents=True)
    link.symlink_to(precious)
    attempt = Attempt("one", tmp_path / "matrix" / CELLS / "one", (), tmp_path, {}, 9.0)
    entry = Entry(Cell("one", "run", None, ()))
    local = LocalLauncher([0], (), None, tmp_path / "pool")
    Matrix(tmp_path / "matrix", [entry], local, lambda cell: attempt, None).run()  # type: ignore[arg-type]
    assert entry.outcome is not None
    assert entry.outcome.words.startswith(f"{link} is a link")
    assert [*precious.iterdir()] == [precious / "one"]


VERB_OF: dict[str, Any] = {"runs": "run", "check": "check"}


@pytest.mark.parametrize(
    "which",
    [
        *("runs", "runs/one", "runs/one/metrics.json"),
        *("check", "check/one", "check/one/metrics.json"),
    ],
)
def test_what_lies_behind_a_link_is_no_answer_and_stays_as_it_is(
    tmp_path: Path, which: str
) -> None:
    """A folder outside that would be a good answer, if the link were followed."""
    outside, folder = tmp_path / "outside", tmp_path / "1"
    outside.mkdir()
    document = example().model_copy(update={"name": "one"}).model_dump()
    for place in (outside, outside / "one"):
        (place / ".scratch").mkdir(parents=True)
        (place / ".scratch" / "precious").touch()
        (place / "metrics.json").write_text(jsonio.dumps(document | DEAD))
    before = {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}
    link = folder / which
    link.parent.mkdir(parents=True)
    target = outside / link.name
    link.symlink_to(target if target.exists() else outside)
    found = outcome_of(*left(folder, VERB_OF[which.split("/")[0]], 0), None, save_to=False)
    assert found.verdict == "error"
    assert f"{link} is a link" in found.words
    assert {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()} == before


def test_judging_changes_nothing_in_a_folder_that_a_stranger_filled(tmp_path: Path) -> None:
    place = leave(tmp_path, **DEAD)
    (place / ".scratch").mkdir()
    before = (place / "metrics.json").read_bytes()
    found = outcome_of(*left(tmp_path, "run", 0), None, save_to=False)
    assert found.verdict == "error"
    assert "ended without finishing the record" in found.words
    assert (place / "metrics.json").read_bytes() == before
    assert (place / ".scratch").is_dir()


@pytest.mark.parametrize(
    ("name", "grown", "said"),
    [
        ("steps.jsonl", 65 << 20, "more than 64 MiB"),
        ("metrics.json", 9 << 20, "larger than 8 MiB"),
    ],
)
def test_files_without_end_are_not_read(tmp_path: Path, name: str, grown: int, said: str) -> None:
    place = leave(tmp_path, **DEAD)
    with (place / name).open("a") as file:
        file.truncate(grown)
    found = outcome_of(*left(tmp_path, "run", 0), None, save_to=False)
    assert found.verdict == "error"
    assert said in found.words


def test_steps_that_would_fill_the_memory_are_not_read(tmp_path: Path) -> None:
    """Three bytes of an empty list take 64 in memory."""
    place = leave(tmp_path, **DEAD)
    (place / "steps.jsonl").write_text(("[" + "[]," * 300_000 + "0]\n") * 10)
    found = outcome_of(*left(tmp_path, "run", 0), None, save_to=False)
    assert found.verdict == "error"
    assert "more than 64 MiB or 5,000,000 values" in found.words


EVIL = "\n::error::x ##[error]y ##[add-matcher]/tmp/x \x1b[31m"


@pytest.mark.parametrize("where", ["reason", "log.txt", "gave-up"])
def test_no_text_of_a_cell_is_a_command_of_a_jobs_log(tmp_path: Path, where: str) -> None:
    cell, attempt = left(tmp_path, "run", 4)
    if where == "reason":
        leave(tmp_path, status="failed", reason=EVIL)
    else:
        (tmp_path / where).write_text(EVIL)
    if where == "gave-up":
        (tmp_path / "ended").unlink()
    entry = Entry(cell, outcome_of(cell, attempt, None, save_to=False))
    said: list[str] = []
    matrix = Matrix(tmp_path, [entry], LocalLauncher([0], (), None), None, None)  # type: ignore[arg-type]
    View(said.append, lambda: 0.0).told(matrix)
    answer = answer_of([entry], "m")
    shown = [answer_text(answer, form, tmp_path) for form in ("text", "markdown", "json")] + said
    assert len(said) == 1
    for one in shown:
        assert "error" in one
        assert "##[" not in one
        assert "\x1b" not in one
        assert not any(line.lstrip().startswith("::") for line in one.splitlines())


def test_a_cell_that_takes_all_memory_does_not_end_the_matrix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def greedy(folder: Path) -> None:
        raise MemoryError

    monkeypatch.setattr(outcomes, "seen_record", greedy)
    assert collected(tmp_path).verdict == "error"


def test_no_file_of_a_try_is_followed_before_it_is_judged(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("1")
    attempt = Attempt("one", tmp_path, (), tmp_path, {}, 9.0, asked="0")
    for name in ("asked", "ended", "gave-up", "began"):
        (tmp_path / name).symlink_to(tmp_path / "secret")
    assert attempt.ended() is None
    assert attempt.gave_up() is None
    assert attempt.starts() == 0
    assert not attempt.is_of_another()


def test_what_was_planted_before_the_start_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "1"
    folder.mkdir()
    (folder / "planted").write_text("{}")
    (folder / "ended").write_text("0")
    attempt = Attempt("one", folder, ("sh", "-c", "ls; exit 3"), tmp_path, {}, 9.0)
    local = LocalLauncher([0], (), None, tmp_path / "pool")
    assert local.start(attempt)
    while not [*local.poll()]:
        local.wait(1.0)
    assert attempt.ended() == 3
    assert not (folder / "planted").exists()


def test_a_lock_that_somebody_holds_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "1"
    folder.mkdir()
    attempt = Attempt("one", folder, ("true",), tmp_path, {}, 9.0)
    with (folder / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        local = LocalLauncher([0], (), None, tmp_path / "pool")
        with pytest.raises(MachineError, match="another process holds"):
            local.start(attempt)


@pytest.mark.parametrize("text", ["garbage", "5", "[1]", "[null]", "[" * 5000])
def test_a_list_of_jobs_that_cannot_be_read_names_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(SlurmQueue, "_require", lambda self: None)
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "canary-1.json").write_text(text)
    queue = SlurmQueue(Slurm(kind="slurm"), tmp_path)
    assert [*queue._known()] == ["canary-1"]


@pytest.mark.parametrize(
    "change",
    [
        lambda values: values["launcher"]["options"].update({"a\nrm": "x"}),
        lambda values: values["launcher"].update({"memory": float("inf")}),
        lambda values: values.update({"env": {"folder": "/x"}}),
        lambda values: values.update({"env": {"A": "x\0y"}}),
        lambda values: values.update({"timeout": float("inf")}),
        lambda values: values.update({"history": ""}),
    ],
)
def test_values_that_would_change_the_script_are_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    values: dict[str, Any] = {"launcher": {"kind": "slurm", "options": {}}}
    change(values)
    file = tmp_path / "m.yaml"
    file.write_text(json.dumps(values).replace("Infinity", ".inf"))
    with pytest.raises(ConfigError):
        read_matrix(file)
