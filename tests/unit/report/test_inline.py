"""What a notebook shows of a record and of a comparison."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from canary.baseline.history import save
from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.errors import InputError
from canary.record.folder import load_record
from canary.record.types import RunRecord
from canary.report.inline import charts, history, shown
from tests.unit.comparing import example, record

HOSTILE = "<img src=x onerror=alert(1)>\u202e"


class Tags(HTMLParser):
    """The names of all elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found.append(tag)


def html(value: RunRecord | Comparison) -> str:
    return shown(value)._repr_html_()


def test_a_record_is_a_table_and_two_charts() -> None:
    text = html(example())
    assert "final loss" in text
    assert "peak memory" in text
    assert Tags(text).found.count("svg") == 2
    assert len(text) < 200_000


def test_a_notebook_shows_a_record_and_a_comparison() -> None:
    code = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
import sys
import canary
assert "canary.report" not in sys.modules
from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from tests.unit.comparing import example
record = example()
other = record.model_copy(update={"run_id": "20260102-000000-x-0000"})
for value in (record, compare_to_baseline(other, record)):
    shown, _ = shell.display_formatter.format(value)
    assert "<table" in shown["text/html"]
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])


def test_a_comparison_says_its_answer_what_failed_and_by_how_much() -> None:
    record = example()
    stability = record.stability.model_copy(update={"nan_steps": 3})
    worse = record.model_copy(update={"run_id": "20260102-000000-x-0000", "stability": stability})
    text = html(compare_to_baseline(worse, record))
    assert "regression" in text
    assert "nan_steps" in text
    rows = text[text.index("<tbody>") : text.index("</tbody>")]
    assert rows.index("FAIL") < rows.index("ok")
    assert "more checks" in text


def test_a_strangers_record_adds_no_element() -> None:
    clean = example()
    hostile = clean.model_copy(
        update={
            "run_id": "hostile",
            "name": HOSTILE,
            "status": "failed",
            "reason": f"{HOSTILE}\n{HOSTILE * 500}",
        }
    )
    text = html(hostile)
    assert Tags(text).found.count("img") == 0
    assert "\u202e" not in text
    found = replace(compare_to_baseline(clean, hostile), first_line=HOSTILE * 900)
    assert Tags(html(found)).found.count("img") == 0
    assert len(html(found)) < 200_000


def test_no_text_is_typeset_as_a_formula() -> None:
    """MathJax of a notebook would read `$...$`, and a formula can cover the verdict above it."""
    formula = r"$\smash{\raise30px{\rlap{\colorbox{white}{pass}}}}$"
    hostile = example().model_copy(update={"status": "failed", "reason": formula})
    assert re.match(r'<div class="tex2jax_ignore mathjax_ignore" ', html(hostile))


def test_charts_are_chosen_by_name(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        record = example().model_copy(update={"run_id": name})
        (tmp_path / name / "metrics.json").write_text(json.dumps(record.model_dump(mode="json")))
    assert load_record(tmp_path / "a").run_id == "a"
    text = charts(tmp_path / "a", tmp_path / "b", "loss")._repr_html_()
    assert Tags(text).found.count("svg") == 1
    assert "baseline" in text
    with pytest.raises(InputError, match="no chart 'los'") as caught:
        charts(tmp_path / "a", None, "los")
    assert caught.value.hint == "did you mean 'loss'?"


def test_a_history_is_charts_of_the_metrics_that_are_named(tmp_path: Path) -> None:
    for place in range(7):
        save(tmp_path, record(3600 * place, 0.1, memory_mb=600 if place < 4 else 660))
    found = history(tmp_path, "max_memory")
    assert found.line == "Peak memory got worse."
    assert [one.name for one in found.charts] == ["max_memory"]
    text = found._repr_html_()
    assert "Peak memory +10.0%" in text
    assert "+10.0% run 5" in text, "the label in the chart, without a commit"
    assert Tags(text).found.count("svg") == 1
    unnamed = [one.name for one in history(tmp_path).charts]
    assert unnamed[0] == "max_memory"
    assert len(unnamed) == 2
    with pytest.raises(InputError, match="no chart 'max_memor'"):
        history(tmp_path, "max_memor")
    with pytest.raises(InputError, match="holds no baseline history"):
        history(tmp_path / "missing")


def test_without_the_extra_the_table_remains() -> None:
    code = """
import sys
sys.modules["altair"] = sys.modules["vl_convert"] = None
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name in ("altair", "vl_convert") else found(name)
from tests.unit.comparing import example
from canary.report.inline import shown
html = shown(example())._repr_html_()
assert "final loss" in html and "<svg" not in html
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])
