"""The page of a check, and its file read back: what a stranger may write there stays text."""

from __future__ import annotations

import html
import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from canary.check.answer import check_document, check_text, left_behind, write_check
from canary.check.page import check_page
from canary.check.run import Checked
from canary.check.schema import LARGEST
from canary.check.stored import read_check
from canary.cli import app
from canary.errors import CanaryError, InputError, RecordError
from canary.relations import RELATIONS
from canary.relations.relation import Relation, outcome
from tests.unit.hostile import PAYLOADS

BROKEN = outcome(
    "padding", "broken", "a log-probability of -1 becomes -2", "row 1, token 3", (-1, -2), 1.1e-4
)
HOLDS = outcome("order", "holds", "log-probabilities differ by at most 0", tolerance=2e-5)
OPEN = outcome("merge", "undecided", "the test failed: no")
NOT = outcome("packing", "not applicable", "no row holds several documents")
LEFT = outcome("resume", "not asked", "a quick check leaves it out")


def checked(folder: Path, *outcomes: Any) -> Checked:
    return Checked(
        "mine", outcomes or (BROKEN, HOLDS, OPEN, NOT, LEFT), folder, 3, 61.0, ("a note",)
    )


def test_the_page_has_a_table_for_each_status(tmp_path: Path) -> None:
    text = check_page(checked(tmp_path))
    assert "<h1>Broken: padding. 1 other relation holds, 1 is undecided.</h1>" in text
    for title in (
        "Broken (1)",
        "Undecided (1)",
        "Holds (1)",
        "Not applicable (1)",
        "Not asked (1)",
    ):
        assert f"<h2>{title}</h2>" in text
    for cell in ("row 1, token 3", "-1 and -2", "0.00011", RELATIONS["padding"].likely):
        assert cell in text
    assert f">{html.escape(RELATIONS['order'].holds)}</td>" in text
    assert text.count(">reason</th>") == 3
    source = RELATIONS["reference_start"].source
    made = checked(tmp_path, outcome("reference_start", "broken", "another model"))
    assert f'<a href="{source}" rel="noreferrer">arXiv:2305.18290</a>' in check_page(made)
    assert "3 launches in 61 s" in text


def test_a_check_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    made = checked(tmp_path, BROKEN, HOLDS, outcome("frozen", "broken", "x", "y", (math.nan, 1)))
    left_behind(made)
    found = read_check(tmp_path / "check.json")
    assert check_text(found, "text") == check_text(made, "text")
    assert check_page(found) == check_page(made)
    assert found.exit_code == 1


def test_what_is_allowed_is_said_once(tmp_path: Path) -> None:
    said = outcome(
        "order", "holds", "log-probabilities differ by at most 0, allowed 2e-05", tolerance=2e-5
    )
    text = check_page(checked(tmp_path, said))
    assert text.count("2e-05") == 1
    assert ">allowed</th>" not in text


def test_report_draws_the_page_of_a_folder(tmp_path: Path) -> None:
    left_behind(checked(tmp_path))
    done = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "row 1, token 3" in (tmp_path / "report.html").read_text()


def test_every_text_of_a_check_stays_text(tmp_path: Path) -> None:
    payloads = " ".join(PAYLOADS)
    own = Relation("mine", "sampling", payloads, payloads, "javascript:alert(1)")
    made = replace(
        checked(tmp_path, outcome("mine", "broken", payloads, payloads)),
        name=payloads,
        notes=(payloads,),
        described={"mine": own},
    )
    page = check_page(made)
    assert "<img" not in page
    assert 'href="javascript' not in page
    assert "\x1b" not in page
    markdown = check_text(made, "markdown")
    assert "<img" not in markdown
    assert "](javascript" not in markdown
    assert "](https://evil" not in markdown


def test_a_file_cannot_say_what_a_known_relation_is(tmp_path: Path) -> None:
    document = check_document(checked(tmp_path, BROKEN))
    document["relations"][0] |= {"likely": "nothing at all", "source": "https://evil.example"}
    (tmp_path / "check.json").write_text(json.dumps(document))
    page = check_page(read_check(tmp_path / "check.json"))
    assert "evil.example" not in page
    assert RELATIONS["padding"].likely in page


WRONG: dict[str, Any] = {
    "relations": {"relations": [{"relation": "<b>", "status": "broken"}]},
    "status": {"relations": [{"relation": "order", "status": "fine"}]},
    "message": {"relations": [{"relation": "order", "status": "holds", "message": "x" * 2_001}]},
    "number": {"relations": [{"relation": "order", "status": "holds", "values": ["much"]}]},
    "many": {"relations": [{"relation": f"r{n}", "status": "holds"} for n in range(201)]},
    "twice": {"relations": [{"relation": "order", "status": "holds"}] * 2},
    "version": {"schema_version": 2, "relations": []},
    "seconds": {"relations": [], "seconds": "inf"},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_of_another_shape_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    file = tmp_path / "check.json"
    file.write_text(json.dumps({"schema_version": 1, **WRONG[name]}))
    with pytest.raises(RecordError) as said:
        read_check(file)
    assert "is not the answer of a check" in str(said.value)
    assert "\n" not in str(said.value)
    assert len(str(said.value)) < 500


def test_a_file_that_is_no_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "check.json"
    with pytest.raises(InputError, match="run canary check"):
        read_check(file)
    os.mkfifo(file)
    with pytest.raises(RecordError, match="not a regular file"):
        read_check(file)
    file.unlink()
    for text in (" " * (LARGEST + 1), "[" * 100_000, "nonsense", '{"a": NaN}', "[]"):
        file.write_text(text)
        with pytest.raises(CanaryError):
            read_check(file)


def test_the_page_replaces_nothing_of_a_user(tmp_path: Path) -> None:
    write_check(checked(tmp_path), tmp_path / "report.html")
    assert 'content="rlhf-canary"' in (tmp_path / "report.html").read_text()
