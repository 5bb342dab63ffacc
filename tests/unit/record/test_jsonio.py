"""Strict JSON and whole-file replacement."""

import json
import math
from pathlib import Path

import pytest

from canary.record import jsonio


def test_numbers_that_are_not_finite_are_written_by_name() -> None:
    text = jsonio.dumps({"a": math.nan, "b": [math.inf, -math.inf, 1.5]})
    assert json.loads(text) == {"a": "nan", "b": ["inf", "-inf", 1.5]}
    assert math.isnan(jsonio.number("nan"))
    assert jsonio.number("-inf") == -math.inf


@pytest.mark.parametrize("text", ["NaN", '{"a": Infinity}', "[-Infinity]", "1" * 400])
def test_bare_non_finite_numbers_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not valid JSON|more than 300 digits"):
        jsonio.loads(text)


def test_a_row_cut_off_by_a_crash_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "steps.jsonl"
    file.write_text('{"step": 1}\n{"step": 2}\n{"step": 3, "lo')
    assert [row["step"] for row in jsonio.read_rows(file)] == [1, 2]


def test_a_failed_replacement_keeps_the_old_file_and_leaves_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "metrics.json"
    jsonio.replace_file(file, "old")

    def refuse(*_: object) -> None:
        raise OSError("disk")

    monkeypatch.setattr("canary.record.jsonio.Path.replace", refuse)
    with pytest.raises(OSError, match="disk"):
        jsonio.replace_file(file, "new")
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.json"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 51 + "]" * 51, "nests more than 50 levels"),
        ('{"a":' * 51 + "1" + "}" * 51, "nests more than 50 levels"),
        (json.dumps({str(n): n for n in range(5_001)}), "a mapping of more than 5000 keys"),
        (json.dumps([list(range(100_001))]), "a list of more than 100000 items"),
        (json.dumps([list(range(90_000))] * 6), "more than 500000 values"),
        ('["\\ud800"]', "half of a character"),
        ('{"\\udfff": 1}', "half of a character"),
    ],
)
def test_a_document_that_no_record_can_be_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        jsonio.check_bounds(jsonio.loads(text))


@pytest.mark.parametrize(
    "document",
    [{"a": [[{"b": "ä\U0001f600"}]]}, [1.0] * 100_000, dict.fromkeys(map(str, range(5_000)))],
)
def test_a_document_within_the_bounds_is_taken(document: object) -> None:
    jsonio.check_bounds(document)
