"""What is stored of a notebook's outputs names neither the machine nor the day."""

from __future__ import annotations

import getpass
import platform
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

from tools.notebooks import outputs


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], str]:
    """The cleaner of a notebook that `mira` ran on the machine `build7`."""
    monkeypatch.setattr(getpass, "getuser", lambda: "mira")
    monkeypatch.setattr(platform, "node", lambda: "build7")
    return outputs.cleaner(tmp_path)


def test_names_folders_and_days_are_left_out(clean: Callable[[str], str], tmp_path: Path) -> None:
    assert clean(f"{tmp_path}/after/20260102-030405-sft-ab12") == "./after/DATE-TIME-sft-ab12"
    assert clean(f"wrote {tmp_path}/canary-a1_b2c3d/page.html") == "wrote ./page.html"
    assert (
        clean("5 runs on 2026-01-02, by mira on build7") == "5 runs on DATE, by MACHINE on MACHINE"
    )
    assert clean("<b>mira</b>") == "<b>MACHINE</b>"


def test_a_machine_is_left_out_by_its_short_name_and_in_words_of_a_picture(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "anna")
    monkeypatch.setattr(platform, "node", lambda: "build7.example.org")
    clean = outputs.cleaner(tmp_path)
    assert clean("on build7, build7.example.org") == "on MACHINE, MACHINE"
    picture = '<svg aria-label="runs of anna on build7">'
    assert clean(picture) == '<svg aria-label="runs of MACHINE on MACHINE">'


def test_folders_of_packages_are_left_out(clean: Callable[[str], str]) -> None:
    shared = next(one for one in sys.path if one.endswith("site-packages"))
    assert clean(f"{shared}/trl/x.py: a warning") == "PYTHON/trl/x.py: a warning"


def test_an_expected_error_is_cleaned_too(tmp_path: Path) -> None:
    code = nbformat.v4.new_code_cell("open('x')")
    said = f"no {tmp_path}/x"
    traceback = [f"File {tmp_path}/x", f"\x1b[31mOSError\x1b[0m: {said}"]
    code.outputs = [nbformat.v4.new_output("error", ename="OSError", evalue=said)]
    code.outputs[0].traceback = traceback
    notebook = nbformat.v4.new_notebook(cells=[code])
    outputs.clean_notebook(notebook, tmp_path)
    (output,) = notebook.cells[0].outputs
    assert (output.evalue, output.traceback) == ("no ./x", ["File ./x", "OSError: no ./x"])


def test_the_attributes_of_a_chart_stay(clean: Callable[[str], str]) -> None:
    picture = '<g class="mark-group role-frame mira">'
    assert clean(picture) == picture


def test_lines_end_as_elsewhere(clean: Callable[[str], str]) -> None:
    assert clean("one\r\ntwo\r\r\n\x1b[1mthree\x1b[0m\n") == "one\ntwo\nthree\n"
