"""What a notebook shows of a ladder, as its folder keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest

from canary.errors import InputError, RecordError
from canary.ladder.report import report_of, result_text
from canary.ladder.results import Ladder, load_result
from tests.unit.ladder.test_ladder_view import ladder


def test_a_ladder_shows_its_answer_its_levels_and_a_chart(tmp_path: Path) -> None:
    (tmp_path / "ladder.json").write_text(result_text(ladder(), "json"))
    found = load_result(tmp_path)
    assert isinstance(found, Ladder)
    shown = found._repr_html_()
    assert report_of(ladder()).answer.split(":")[0] in shown
    assert all(f">{level.level}<" in shown for level in found.levels)
    assert "UNSAFE" in shown
    assert shown.count("<svg") == 1
    assert repr(found) == f"Ladder({found.headline!r}, {report_of(found).answer!r})"


def test_a_folder_without_a_result_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no result of canary ladder"):
        load_result(tmp_path)
    (tmp_path / "ladder.json").write_text('{"schema_version": 1, "levels": 3}')
    with pytest.raises(RecordError, match="is not the result of a ladder"):
        load_result(tmp_path)
