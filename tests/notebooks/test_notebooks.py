"""The notebooks: each runs from its first cell to its last, and what is stored of it is clean."""

from __future__ import annotations

import getpass
import importlib.util
import os
import platform
import re
import subprocess
import time
from pathlib import Path

import nbformat
import pytest

from tools.notebooks.__main__ import every, executed, read
from tools.notebooks.outputs import LARGEST, clean_notebook, cleaner

BY_NAME = {path.stem: path for path in every()}
MOST_CELLS, LONGEST_S = 12, 180
LONGEST_REPR = 1_000  # beside a table or a chart
INSTALL = "# Installs the canary where it is missing, as in Colab."
TRY = re.compile(r"(?:^|\n)## Three things to try\n\n1\. .*\n2\. .*\n3\. ", re.DOTALL)


@pytest.mark.train
@pytest.mark.slow
@pytest.mark.parametrize("name", BY_NAME)
def test_a_notebook_runs_to_its_end(name: str, tmp_path: Path) -> None:
    """Its cells assert what its text claims. Other work on the machine stretches its minutes."""
    began = time.monotonic()
    notebook = executed(BY_NAME[name], tmp_path)
    assert any("assert " in cell.source for cell in notebook.cells if cell.cell_type == "code")
    busy = max(os.getloadavg()[:2]) / (os.cpu_count() or 1)
    assert time.monotonic() - began < LONGEST_S * max(1.0, busy)
    clean_notebook(notebook, tmp_path)
    assert str(tmp_path) not in nbformat.writes(notebook)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_notebook_has_the_form_of_all(name: str) -> None:
    cells = read(BY_NAME[name]).cells
    assert len(cells) <= MOST_CELLS
    title, badge, about = cells[0].source.split("\n\n")[:3]
    assert title.startswith(f"# {int(name[:2])}. ")
    there = f"github/rlhf-canary/rlhf-canary/blob/main/notebooks/{name}.ipynb"
    assert re.fullmatch(rf"\[!\[Open in Colab\]\(\S+\)\]\(https://colab\.\S+/{there}\)", badge)
    assert about.startswith("**What you will see.**")
    install = next(cell for cell in cells if cell.cell_type == "code")
    assert install.source.startswith(INSTALL)
    assert TRY.search(cells[-1].source)


@pytest.mark.parametrize("name", BY_NAME)
def test_what_is_stored_is_whole_and_clean(name: str) -> None:
    notebook = read(BY_NAME[name])
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [*range(1, len(code) + 1)]
    outputs = [output for cell in code for output in cell.outputs]
    assert all(output.output_type != "error" for output in outputs)
    assert len("".join(map(str, outputs))) < LARGEST
    plain = [output.get("data", {}).get("text/plain", "") for output in outputs]
    assert max(map(len, plain)) < LONGEST_REPR, "it shows the whole object"
    text = nbformat.writes(notebook)
    for wrong in (r"/tmp/", r"/root\b", r"/home/\w", r"site-packages", r"\d{8}-\d{6}-[a-z]"):
        assert not re.search(wrong, text), wrong


@pytest.mark.parametrize("name", BY_NAME)
def test_the_first_cell_installs_from_the_clone_or_from_git(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install = next(cell for cell in read(BY_NAME[name]).cells if cell.cell_type == "code")
    asked: list[str] = []
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(subprocess, "run", lambda words, check: asked.append(words[-1]))
    clone = tmp_path / "clone"
    (clone / "canary").mkdir(parents=True)
    (clone / "canary" / "__init__.py").touch()
    (clone / "notebooks").mkdir()
    for place in (clone / "notebooks", tmp_path):
        monkeypatch.chdir(place)
        exec(install.source, {})
        assert Path.cwd().parent == place.resolve()
    git = "git+https://github.com/rlhf-canary/rlhf-canary"
    assert asked == [f"{clone}[train,report]", f"rlhf-canary[train,report] @ {git}"]


def test_charts_are_inline() -> None:
    drawn = {name for name in BY_NAME if "import charts" in BY_NAME[name].read_text("utf-8")}
    assert len(drawn) > 4
    for name in drawn:
        assert "<svg " in BY_NAME[name].read_text("utf-8"), name


def test_paths_dates_and_names_are_cleaned(tmp_path: Path) -> None:
    clean = cleaner(tmp_path)
    said = f"{tmp_path}/a/20260101-120000-sft-ab12 at 2026-01-01T12:00:00+00:00 \x1b[1mbold\x1b[0m"
    assert clean(said) == "./a/DATE-TIME-sft-ab12 at DATE bold"
    assert clean(str(Path.home() / "x")) == "~/x"
    assert clean("12.5 ms per step, 1,024 tokens") == "12.5 ms per step, 1,024 tokens"


def test_a_user_who_is_root_leaves_the_words_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "root")
    monkeypatch.setattr(platform, "node", lambda: "box-17")
    assert cleaner(tmp_path)("root mean square on box-17") == "root mean square on MACHINE"
