"""Strict JSON and whole-file replacement."""

import json
import math
from pathlib import Path

import pytest

from canary.collect import jsonio


def test_numbers_that_are_not_finite_are_written_by_name() -> None:
    text = jsonio.dumps({"a": math.nan, "b": [math.inf, -math.inf, 1.5]})
    assert json.loads(text) == {"a": "nan", "b": ["inf", "-inf", 1.5]}
    assert math.isnan(jsonio.number("nan"))
    assert jsonio.number("-inf") == -math.inf


@pytest.mark.parametrize("text", ["NaN", '{"a": Infinity}', "[-Infinity]"])
def test_bare_non_finite_numbers_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not valid JSON"):
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

    monkeypatch.setattr("canary.collect.jsonio.Path.replace", refuse)
    with pytest.raises(OSError, match="disk"):
        jsonio.replace_file(file, "new")
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.json"]
