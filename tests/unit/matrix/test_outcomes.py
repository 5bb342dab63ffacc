"""What a cell left, as an answer; a stranger may have written it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from canary.matrix.answer import answer_of, answer_text
from canary.matrix.attempt import Attempt
from canary.matrix.cells import Cell
from canary.matrix.document import Verb
from canary.matrix.outcomes import Outcome, outcome_of, worst_code
from canary.matrix.running import Entry
from canary.record import jsonio
from canary.record.types import RunRecord
from tests.unit.compare.rules.test_update_rules import ADAM
from tests.unit.comparing import example


def left(folder: Path, verb: Verb, code: int | None) -> tuple[Cell, Attempt]:
    """A try that ended with a code."""
    attempt = Attempt("one", folder, ("true",), folder, {}, 60.0)
    if code is not None:
        (folder / "ended").write_text(str(code))
    return Cell("one", verb, "one.yaml", ()), attempt


def record(**update: Any) -> RunRecord:
    return example().model_copy(update={"name": "one", **update})


def told(folder: Path, verb: Verb, code: int | None, history: Path | None = None) -> Outcome:
    return outcome_of(*left(folder, verb, code), history, save_to=history is not None)


def test_a_run_begins_its_history(tmp_path: Path) -> None:
    place = tmp_path / "runs" / "20260101-000001-one"
    place.mkdir(parents=True)
    (place / "metrics.json").write_text(jsonio.dumps(record().model_dump()))
    history = tmp_path / "history"
    first = told(tmp_path, "run", 0, history)
    assert first.verdict == "no-baseline"
    assert first.words == "No baseline yet: this is run 1 of the 3 that it needs."
    assert len([*history.rglob("*.json")]) == 1
    again = told(tmp_path, "run", 0, history)
    assert again.words == first.words
    assert "not saved" not in again.words, "a matrix that goes on judges it again"
    assert len([*history.rglob("*.json")]) == 1


@pytest.mark.parametrize("stores", [True, False])
def test_a_broken_rule_needs_no_history(tmp_path: Path, stores: bool) -> None:
    place = tmp_path / "runs" / "20260101-000001-one"
    place.mkdir(parents=True)
    whole = record()
    broken: Any = [ADAM | {"left": 11, "emptied": 0}]
    whole.exact["facts"] = {"updates": {"optimizers": broken}}
    (place / "metrics.json").write_text(jsonio.dumps(whole.model_dump()))
    history = tmp_path / "history"
    found = told(tmp_path, "run", 0, history if stores else None)
    assert (found.verdict, found.exit_code) == ("regression", 1)
    assert "11 of 11 updates" in found.words
    assert not history.exists()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (2, "no config"),
        (124, "longer than 1 minute"),
        (137, "signal 9"),
        (None, "it left no exit code"),
    ],
)
def test_what_left_no_answer_has_a_reason(tmp_path: Path, code: int | None, words: str) -> None:
    (tmp_path / "log.txt").write_text("a\ncanary: no config\n")
    answer = told(tmp_path, "run", code)
    assert words in answer.words
    assert answer.verdict == ("invalid" if code == 2 else "error")


def test_a_hostile_answer_is_one_harmless_line(tmp_path: Path) -> None:
    (tmp_path / "check" / "one").mkdir(parents=True)
    (tmp_path / "check" / "one" / "metrics.json").write_text('{"exact": "\\u001b[2J"}')
    assert told(tmp_path, "check", 0).verdict == "error"
    (tmp_path / "log.txt").write_text("\x1b[31m| <img src=x> |\n")
    entry = Entry(Cell("one", "run", "c", ()), told(tmp_path, "run", 4))
    answer = answer_of([entry], "m")
    assert "\x1b" not in answer_text(answer, "text", tmp_path)
    assert "<img" not in answer_text(answer, "markdown", tmp_path)
    assert answer.exit_code == 4


def test_the_worst_cell_decides() -> None:
    made = [Outcome("pass", ""), Outcome("inconclusive", "", code=0), Outcome("regression", "")]
    assert worst_code(made[:2]) == 0
    assert worst_code(made) == 1
    assert worst_code([*made, Outcome("error", "")]) == 4
    assert worst_code([]) == 4


def test_what_a_cell_took_does_not_depend_on_the_times_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "began").write_text("12 host 1000.25\n13 host 2000.5\n")
    (tmp_path / "ended").write_text("0 2015.75\n")
    _, attempt = left(tmp_path, "run", None)
    assert (attempt.ended(), attempt.took()) == (0, 15.25)
    (tmp_path / "ended").write_text("0 inf\n")
    assert attempt.took() == 0.0
    (tmp_path / "ended").write_text("0\n")
    assert (attempt.ended(), attempt.took()) == (0, 0.0)
