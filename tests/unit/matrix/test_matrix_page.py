"""The page of a matrix: all cells, what the worst ones left, and no text that is more than text."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from canary.cli import app
from canary.compare.paths import Request, compared_paths
from canary.errors import InputError, RecordError, UsageError
from canary.matrix.answer import FILE, read_answer, write_page
from canary.matrix.attempt import LOG
from canary.matrix.cells import Cell
from canary.matrix.outcomes import Outcome
from canary.matrix.running import Entry
from canary.record import jsonio
from canary.report.document import load_comparison
from tests.unit.hostile import PAYLOADS
from tests.unit.matrix.making import Made, stored
from tests.unit.pages.making import Read, numbers

HOSTILE = "\x1b[31m</pre><script>alert(1)</script>\x07 \u202e<img src=x onerror=alert(2)>\x1b[0m"
FEW_MB = 4_500_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A matrix with a cell of each kind."""
    root = tmp_path_factory.mktemp("matrix")
    made = Made(root / "nightly", root / "history")
    for name in ("same", "slower"):
        stored(made_history(made), name)
    made.run("same", 0.1)
    made.run("slower", 0.15, steps=30)
    made.run("new", 0.1)
    made.check("asked", broken=True)
    made.ab("both", [0.1] * 3)
    made.end("crashed", "run", 4, f"{HOSTILE}\ncanary: {HOSTILE}\n")
    made.end("misspelt", "run", 2, "canary: unknown key 'max_step'\n")
    return made.left()


def made_history(made: Made) -> Path:
    assert made.history is not None
    return made.history


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return written(folder, history=folder.parent / "history")


def written(folder: Path, cell: str | None = None, history: Path | None = None) -> str:
    """The page of a matrix, or of one of its cells."""
    file = folder.parent / "page.html"
    write_page(folder, file, cell, history)
    return file.read_text(encoding="utf-8")


def section(page: str, name: str) -> str:
    """What is shown of a cell."""
    number = re.search(rf'href="#part(\d+)-top">{name}</a>', page)
    assert number, name
    start = page.index(f'<article id="part{number[1]}-top">')
    return page[start : page.index("</article>", start)]


def test_each_cell_has_a_line_and_the_worst_is_first(page: str) -> None:
    table = page[page.index('<table class="rows cells">') : page.index("</table>")]
    names = re.findall(r'<th scope="row"><a href="#part\d+-top">(\w+)</a>', table)
    assert names == ["crashed", "misspelt", "slower", "asked", "new", "same", "both"]
    assert re.findall(r'<tr class="([\w-]+)">', table) == [
        *("error", "invalid", "regression", "regression"),
        *("no-baseline", "pass", "pass"),
    ]
    title = re.search(r"<title>(.*?)</title>", page)
    assert title
    assert title[1] == "nightly: 7 cells: 1 error, 1 invalid, 2 regressions, 1 no-baseline, 2 pass."


def test_a_run_leaves_its_comparison_and_the_page_shows_it(folder: Path, page: str) -> None:
    place = folder / "cells" / "slower" / "1"
    (run,) = (place / "runs").iterdir()
    found = compared_paths(Request((run,), (folder.parent / "history",))).found
    left = load_comparison(place)
    assert left.first_line == found.first_line
    assert left.checks == found.checks
    shown = section(page, "slower")
    assert found.first_line in Read(shown).text
    assert "Is it slower?" in shown
    assert all(check.name in shown for check in found.checks if check.failed)


def test_only_a_history_that_you_name_is_read(folder: Path, page: str, tmp_path: Path) -> None:
    """The answer of a matrix may be a stranger's, and name any folder."""
    shutil.copytree(folder, tmp_path / "m")
    named = json.loads((folder / FILE).read_text())
    for cell in named["cells"]:
        cell["history"] = str(folder.parent / "history")
    (tmp_path / "m" / FILE).write_text(json.dumps(named))
    number = re.search(r'href="#part(\d+)-top">slower</a>', page)
    assert number
    launches = numbers(written(tmp_path / "m"), f"part{number[1]}-launches")["rows"]
    assert {row[0] for row in launches} == {"current"}
    runner = CliRunner()
    for other in (tmp_path / "none", folder):
        result = runner.invoke(app, ["report", str(folder), "--baseline", str(other)])
        assert isinstance(result.exception, UsageError)
        assert "is no history" in str(result.exception)


def test_no_text_of_a_cell_becomes_more_than_text(page: str) -> None:
    read = Read(page)
    assert not [tag for tag, _ in read.tags if tag == "img"]
    charts = len(read.named("svg"))
    assert len(read.named("script")) == charts + 1, "one script is ours, the others are numbers"
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e]", page)
    assert "alert(1)" in section(page, "crashed")
    assert "[31m" not in section(page, "crashed")
    (policy,) = (meta["content"] for meta in read.named("meta") if "http-equiv" in meta)
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


@pytest.mark.parametrize("payload", [*PAYLOADS[::4], HOSTILE])
def test_a_strangers_answer_cannot_become_markup(tmp_path: Path, payload: str) -> None:
    made = Made(tmp_path / "m")
    made.end("one", "run", 4, payload)
    honest = Read(written(made.left()))
    document = jsonio.loads((made.folder / FILE).read_text())
    document["name"] = document["answer"] = document["cells"][0]["message"] = payload
    document["cells"][0]["history"] = payload
    (made.folder / FILE).write_text(jsonio.dumps(document))
    read = Read(written(made.folder))
    assert [tag for tag, _ in read.tags] == [tag for tag, _ in honest.tags]
    assert [set(found) for _, found in read.tags] == [set(found) for _, found in honest.tags]


@pytest.mark.parametrize("name", ["../one", "", "/etc", "a\x00b"])
def test_a_cell_cannot_name_another_folder(tmp_path: Path, name: str) -> None:
    file = tmp_path / FILE
    cell = {"cell": name, "verb": "run", "verdict": "pass"}
    file.write_text(jsonio.dumps({"schema_version": 1, "cells": [cell]}))
    with pytest.raises(RecordError, match=r"cells\.0\.cell"):
        read_answer(file)


@pytest.mark.parametrize("which", ["cells/a", "cells/a/1", "cells/a/1/runs", "cells/a/1/log.txt"])
def test_the_page_shows_nothing_from_behind_a_link(tmp_path: Path, which: str) -> None:
    made = Made(tmp_path / "matrix")
    made.run("a")
    made.left()
    assert "<svg" in written(made.folder)
    outside = tmp_path / "outside"
    shutil.copytree(made.folder / "cells" / "a", outside / "a")
    for log in outside.rglob("log.txt"):
        log.write_text("password=1\n")
    if which.endswith("log.txt"):
        shutil.rmtree(made.place("a") / "runs")
    link = made.folder / which
    if link.is_dir():
        shutil.rmtree(link)
    link.unlink(missing_ok=True)
    link.symlink_to(outside / link.relative_to(made.folder / "cells"))
    page = written(made.folder)
    assert "password" not in page
    assert "<svg" not in page
    assert ("is a link" in page) == (not which.endswith("log.txt"))
    if which == "cells/a":
        with pytest.raises(RecordError, match="is a link"):
            write_page(made.folder, made.folder / which / "report.html", "a")
        assert not [*outside.rglob("report.html")]


@pytest.mark.parametrize("text", ["[]", "{", '{"schema_version": 2, "cells": []}', "[" * 9999])
def test_what_is_no_answer_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(RecordError):
        read_answer(tmp_path / FILE)


def test_an_answer_without_end_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / FILE).open("w") as file:
        file.truncate(17 << 20)
    with pytest.raises(RecordError, match="larger than 16 MiB"):
        read_answer(tmp_path / FILE)


def test_what_a_cell_left_may_be_anything(tmp_path: Path) -> None:
    made = Made(tmp_path / "m", tmp_path / "history")
    stored(tmp_path / "history", "one")
    made.run("one")
    made.check("two")
    made.left()
    place = made.place("one")
    (place / "comparison.json").write_text('{"schema_version": 1, "checks": 7}')
    (place / LOG).unlink()
    os.mkfifo(place / LOG)
    for record in (made.place("two") / "check").glob("*/metrics.json"):
        record.write_text("{}")
    page = written(made.folder)
    assert page.count("What it left cannot be read: ") == 1
    shutil.rmtree(made.folder / "cells")
    assert "<article" in written(made.folder)


def test_a_page_of_1000_cells_is_small_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    made = Made(tmp_path / "m")
    for number in range(45):
        made.end(f"bad-{number}", "run", 4, f"{'x' * 500}\n" * 100)
    words = "Pass: learns the same: batches, losses, gradients and updates are identical."
    for number in range(955):
        cell = Cell(f"learning-rate-{number}", "run", "one.yaml", ())
        made.entries.append(Entry(cell, "done", 1, Outcome("pass", words, None, 12.0)))
    page = written(made.left())
    assert len(page.encode()) < FEW_MB
    assert page.count('<tr class="pass">') == 955
    assert page.count("<article") == 41
    assert "Only the worst 40 of 1000 cells have a section below." in page
    alone = written(made.folder, "bad-44")
    assert alone.count("<article") == 1
    assert "xxx" in alone


def test_the_verb_writes_the_page_of_the_matrix_or_of_a_cell(folder: Path, page: str) -> None:
    runner = CliRunner()
    words = ["report", str(folder), "--baseline", str(folder.parent / "history")]
    result = runner.invoke(app, [*words, "-o", str(folder.parent / "one.html")])
    assert result.exit_code == 0, result.output
    assert (folder.parent / "one.html").read_text(encoding="utf-8") == page
    result = runner.invoke(app, ["report", str(folder), "--canary", "slower"])
    assert result.exit_code == 0, result.output
    alone = (folder / "cells" / "slower" / "report.html").read_text(encoding="utf-8")
    assert 'id="loss"' in alone
    assert "cells" not in re.findall(r'<table class="rows (\w+)">', alone)
    with pytest.raises(InputError, match="did you mean 'slower'"):
        written(folder, "slowre")
