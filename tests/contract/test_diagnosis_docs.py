"""docs/diagnosis.md shows what canary compare prints, and the example of a cause runs."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from canary.cli import main
from canary.compare.diagnosis.suspects import RegressionCategory
from tests.contract.pages import examples

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "diagnosis.md"
SHOWN = re.compile(r"(<!-- explained -->\n)(.*?)(<!-- /explained -->)", re.DOTALL)


def test_the_answer_is_what_compare_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = DOCS.read_text(encoding="utf-8")
    (command,) = re.findall(r"^\$ canary (compare .*)$", text, re.MULTILINE)
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as ended:
        main(command.split())
    assert ended.value.code == 1
    first, _, _ = capsys.readouterr().out.partition("Summary\n")
    block = f"```text\n{first}...\n```\n"
    if os.environ.get("UPDATE_GOLDEN"):
        DOCS.write_text(SHOWN.sub(lambda m: m[1] + block + m[3], text), encoding="utf-8")
    found = SHOWN.search(DOCS.read_text(encoding="utf-8"))
    assert found is not None
    assert found[2] == block


def test_the_example_of_a_cause_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (block,) = examples(ROOT / "CONTRIBUTING.md", "python")
    exec(compile(block, "CONTRIBUTING.md", "exec"), {})


def test_every_category_is_in_the_table() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert not [category for category in RegressionCategory if f"`{category}`" not in text]
