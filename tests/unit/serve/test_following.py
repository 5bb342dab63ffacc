"""Follow a run's files while they grow, break, shrink, end or go."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from canary.record import jsonio
from canary.record.folder import RunFolder
from canary.record.step_row import Row, RowAlert
from canary.serve.listing import Place
from canary.serve.live import Following, LiveRun
from tests.unit.serve.running import add_rows, files_of, of_the_dead, rewrite, rows_between, running

ALERT: RowAlert = {
    "severity": "high",
    "category": "gradients",
    "type": "gradient_spike",
    "message": "gradient norm 31",
    "step": 2,
}


def page_of(folder: RunFolder) -> str:
    """The page of a run that goes on."""
    return LiveRun(Place(folder.path.name, folder.path)).page()


def looked(following: Following) -> Following:
    following.look()
    return following


def test_each_look_reads_what_is_new(tmp_path: Path) -> None:
    folder = running(tmp_path)
    following = Following(folder.path)
    assert looked(following).pace.newest is None
    for last in (3, 7):
        add_rows(folder, rows_between(looked(following).pace.done + 1, last))
        pace = looked(following).pace
        assert (pace.done, pace.steps) == (last, 100)
        assert [row["step"] for row in following.rows[0]] == list(range(1, last + 1))
    assert looked(following).pace.done == 7


def test_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    folder = running(tmp_path)
    following = Following(folder.path)
    text = f"{jsonio.dumps(rows_between(1, 1)[0])}\n"
    with folder.steps.open("a") as stream:
        stream.write(text[:40])
        stream.flush()
        pace = looked(following).pace
        assert (pace.done, following.problem) == (0, "")
        stream.write(text[40:])
    assert looked(following).pace.done == 1


def test_a_file_that_is_written_anew_is_read_anew(tmp_path: Path) -> None:
    folder = running(tmp_path)
    following = Following(folder.path)
    add_rows(folder, rows_between(1, 9))
    assert looked(following).pace.done == 9
    folder.steps.write_text("")
    add_rows(folder, rows_between(1, 2))
    pace = looked(following).pace
    assert pace.done == 2
    assert len(following.rows[0]) == 2


def test_a_launch_that_begins_its_steps_anew_is_followed(tmp_path: Path) -> None:
    folder = running(tmp_path)
    following = Following(folder.path)
    add_rows(folder, rows_between(1, 5))
    assert looked(following).pace.done == 5
    add_rows(folder, rows_between(1, 2))
    assert looked(following).pace.done == 2
    add_rows(folder, rows_between(3, 7))
    assert looked(following).pace.done == 7


def test_a_row_with_nan_is_no_new_start(tmp_path: Path) -> None:
    folder = running(tmp_path)
    following = Following(folder.path)
    add_rows(folder, [{**row, "loss": math.nan} for row in rows_between(1, 3)])
    first = looked(following).pace
    add_rows(folder, rows_between(4, 5))
    assert looked(following).pace is first, "it was not read anew"
    assert first.done == 5


def test_a_rank_that_writes_first_does_not_lead(tmp_path: Path) -> None:
    folder = running(tmp_path)
    following = Following(folder.path)
    add_rows(folder, rows_between(1, 2), rank=1)
    looked(following)
    add_rows(folder, rows_between(1, 5))
    add_rows(folder, rows_between(3, 5), rank=1)
    assert looked(following).pace.done == 5


def test_the_steps_of_several_ranks_are_one_run(tmp_path: Path) -> None:
    folder = running(tmp_path)
    following = Following(folder.path)
    made: list[Row] = [{**row, "alerts": [ALERT]} for row in rows_between(1, 4)]
    add_rows(folder, made)
    add_rows(folder, made[:3], rank=1)
    pace = looked(following).pace
    assert pace.done == 4
    assert len(following.alerts) == 1
    assert len(following.shown().rows) == 3


@pytest.mark.parametrize(("exact", "steps"), [(False, 100), (True, 12)])
def test_the_look_is_followed_too(tmp_path: Path, exact: bool, steps: int) -> None:
    folder = running(tmp_path, exact=exact)
    following = Following(folder.path)
    assert "none yet" in page_of(folder)
    add_rows(folder, [{**row, "look": True} for row in rows_between(1, 5)])
    pace = looked(following).pace
    assert (pace.done, pace.steps) == (5, steps)
    assert f"5 of {steps}" in page_of(folder)
    assert following.shown().record.perf.step_time.count == 0


def test_a_second_launch_counts_from_its_own_start(tmp_path: Path) -> None:
    folder = running(tmp_path)
    following = Following(folder.path)
    add_rows(folder, rows_between(1, 8))
    add_rows(folder, [{**row, "launch": 2} for row in rows_between(1, 3)])
    assert looked(following).pace.done == 3


def test_the_newest_samples_of_the_machine_are_shown(tmp_path: Path) -> None:
    folder = running(tmp_path)
    add_rows(folder, rows_between(1, 2))
    (folder.scratch / "launch1").mkdir()
    reading = folder.scratch / "launch1" / "reading.json"
    reading.write_text('{"gpu_utilization": 87.0}')
    assert "GPU 87%" in page_of(folder)
    reading.unlink()
    os.mkfifo(reading)
    assert "GPU" not in page_of(folder)


def test_a_dead_process_ends_the_run_and_its_record_is_left_alone(tmp_path: Path) -> None:
    folder = running(tmp_path)
    add_rows(folder, rows_between(1, 4))
    following = Following(folder.path)
    rewrite(folder, owner=of_the_dead())
    before = files_of(tmp_path)
    assert looked(following).record.status == "interrupted"
    assert files_of(tmp_path) == before


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "7",
        '{"step": 1}',
        '{"launch": 1, "step": 1, "wall_s": "x"}',
        '{"launch": 1, "step": 1, "wall_s": 0.1, "phases": {}, "alerts": [{}]}',
        '{"launch": [], "step": {}, "wall_s": 0.1}',
    ],
)
def test_rows_of_a_stranger_leave_a_page_that_says_so(tmp_path: Path, line: str) -> None:
    folder = running(tmp_path)
    folder.steps.write_text(f"{line}\n")
    page = page_of(folder)
    assert "cannot be read" in page
    assert "<svg" not in page


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_steps_that_are_no_regular_file_are_not_opened(tmp_path: Path, kind: str) -> None:
    folder = running(tmp_path)
    folder.steps.unlink()
    if kind == "pipe":
        os.mkfifo(folder.steps)
    else:
        folder.steps.symlink_to("/dev/zero")
    assert "not a regular file" in page_of(folder)
