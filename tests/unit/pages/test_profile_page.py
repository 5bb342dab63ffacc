"""The page of a profile: the operators' times, and what differs from another run."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from canary.cli import app
from canary.report.profile import load_profiled, times_of
from canary.report.profile_page import profile_page
from tests.unit.cli.test_profile_verb import SLOWER, USUAL, run_of
from tests.unit.pages.making import Read, numbers


def test_the_page_of_a_profile_has_its_operators_longest_first(tmp_path: Path) -> None:
    run = run_of(tmp_path, "run", USUAL)
    page = profile_page(run, None, 5)
    rows = numbers(page, "self_time")["rows"]
    times = times_of(load_profiled(run))
    assert [row[1] for row in rows] == pytest.approx(sorted(times.values(), reverse=True))
    assert rows[0][0] in Read(page).text
    assert "per step" in Read(page).text


def test_against_another_run_it_shows_what_is_new_and_gone(tmp_path: Path) -> None:
    run, base = run_of(tmp_path, "run", SLOWER), run_of(tmp_path, "base", USUAL)
    rows = numbers(profile_page(run, base, 5), "operators")["rows"]
    changes = {row[0]: row[1] for row in rows}
    assert changes["aten::sort"] == "new"
    assert changes["aten::_flash_attention_forward"] == "gone"


def test_the_verb_leaves_the_page_beside_its_file_and_spares_what_is_not_ours(
    tmp_path: Path,
) -> None:
    run = run_of(tmp_path, "run", USUAL)
    out = tmp_path / "out" / "profile.txt"
    out.parent.mkdir()
    said = CliRunner().invoke(app, ["profile", str(run), "-o", str(out)])
    assert said.exit_code == 0, said.output
    page = out.parent / "report.html"
    assert "self_time" in page.read_text()
    assert f"report with charts: {page}" in said.stderr
    page.write_text("<!doctype html><p>mine")
    again = CliRunner().invoke(app, ["profile", str(run), "-o", str(out)])
    assert again.exit_code == 0
    assert "is not one of ours" in again.stderr
    assert page.read_text() == "<!doctype html><p>mine"
    silent = CliRunner().invoke(app, ["profile", str(run)])
    assert "report" not in silent.stderr
