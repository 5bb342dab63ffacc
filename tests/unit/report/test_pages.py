"""The runs of a comparison are found again within bounds: a stranger may have written it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from canary.compare.stats import compare_to_baseline
from canary.errors import RecordError
from canary.record import jsonio
from canary.record.folder import load_record
from canary.record.types import RunRecord
from canary.report.document import document, load_comparison
from canary.report.pages import COMPARISON, GENERATOR, MOST_RUNS, compared_in, leave_page
from tests.unit.comparing import records


def left(folder: Path, run_ids: list[str]) -> None:
    """Leave a comparison whose current side names runs."""
    before, after = records([0.1] * 3), records([0.1] * 3, first=50)
    made = document(compare_to_baseline(after, before))
    made["current"]["run_ids"] = run_ids
    folder.mkdir(parents=True, exist_ok=True)
    (folder / COMPARISON).write_text(json.dumps(made))


def leave(place: Path, run: RunRecord) -> None:
    place.mkdir(parents=True)
    (place / "metrics.json").write_text(jsonio.dumps(run.model_dump()))


def test_only_what_is_there_is_read_however_many_runs_are_named(tmp_path: Path) -> None:
    """Many names beside many folders must not be tried one with the other."""
    folder = tmp_path / "ab"
    left(folder, [f"r{number}" for number in range(5_000)])
    for number in range(300):
        (folder / f"side{number}").mkdir()
    read: list[Path] = []

    def load(place: Path) -> RunRecord:
        read.append(place)
        return load_record(place)

    (run,) = records([0.1])
    leave(folder / "side7" / "r4999", run.model_copy(update={"run_id": "r4999"}))
    leave(folder / "side8" / "r1", run)
    found = compared_in(folder, load)
    assert read == [folder / "side7" / "r4999"]
    assert [one.run_id for one in found.current] == ["r4999"]
    assert MOST_RUNS < 5_000


def test_a_run_of_that_name_may_lie_in_the_folder_or_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "ab" / "one"
    runs = records([0.1] * 3)
    left(folder, [one.run_id for one in runs])
    leave(folder / runs[0].run_id, runs[1])  # It says that it is another one.
    leave(folder / "side" / runs[0].run_id, runs[0])
    leave(folder.parent / "other" / runs[1].run_id, runs[1])
    leave(folder.parent / runs[2].run_id, runs[2])
    found = compared_in(folder)
    assert [one.run_id for one in found.current] == [one.run_id for one in runs]
    assert found.folders[runs[0].run_id] == folder / "side" / runs[0].run_id


def test_folders_behind_links_are_not_looked_through(tmp_path: Path) -> None:
    (run,) = records([0.1])
    left(tmp_path / "ab", [run.run_id])
    leave(tmp_path / "away" / "side" / run.run_id, run)
    (tmp_path / "ab" / "side").symlink_to(tmp_path / "away" / "side")
    assert not compared_in(tmp_path / "ab").current


@pytest.mark.parametrize("key", ["notes", "run_ids"])
def test_a_comparison_without_end_is_refused(tmp_path: Path, key: str) -> None:
    left(tmp_path, ["a"])
    made = json.loads((tmp_path / COMPARISON).read_text())
    (made if key == "notes" else made["current"])[key] = ["x"] * 100_001
    (tmp_path / COMPARISON).write_text(json.dumps(made))
    with pytest.raises(RecordError, match="holds a list of more than 100000 items"):
        load_comparison(tmp_path)


def test_a_comparison_of_many_megabytes_is_not_read(tmp_path: Path) -> None:
    left(tmp_path, ["a"])
    with (tmp_path / COMPARISON).open("a") as file:
        file.write(" " * (8 << 20))
    with pytest.raises(RecordError, match="larger than 8 MiB"):
        load_comparison(tmp_path)


def test_a_page_is_left_where_no_page_of_another_is(tmp_path: Path) -> None:
    page = tmp_path / "report.html"

    def write(path: Path) -> None:
        path.write_text(f"{GENERATOR} new")

    assert leave_page(tmp_path, write) == f"report with charts: {page}"
    page.write_text(f"{GENERATOR} old")
    leave_page(tmp_path, write)
    assert page.read_text().endswith("new")
    page.write_text("<!doctype html><p>mine")
    assert "is not one of ours" in leave_page(tmp_path, write)
    assert page.read_text() == "<!doctype html><p>mine"
