"""Runs that an earlier version stored are not read, and never stand in the way of a new history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from canary.baseline.branch import Remote, pull, push
from canary.baseline.history import drawers, entries, save
from canary.baseline.verbs import show_text
from canary.cli import main
from canary.compare.paths import Request, compared_paths
from canary.errors import EarlierRecord, RecordError
from canary.record.folder import load_record
from canary.record.types import RunRecord
from tests.contract.git_server import bare_repository, git
from tests.unit.branching import REF, adding, run_ids, stored, write_branch
from tests.unit.comparing import record, write

ENTRY = "v1/sft_smoke/cpu_x1_float32/20260101T000001_run-00001.json"


def earlier(whole: RunRecord) -> dict[str, Any]:
    """The record as the version before wrote it, as far as a reader looks at it."""
    return {**whole.model_dump(mode="json"), "schema_version": 1, "probe": {"status": "completed"}}


def entry(whole: RunRecord) -> str:
    return json.dumps({"entry_version": 1, "accepted": None, "record": earlier(whole)})


def stored_before(root: Path) -> Path:
    """A history with one run of the version before."""
    path = root / ENTRY
    path.parent.mkdir(parents=True)
    path.write_text(entry(record(1)))
    return root


@pytest.fixture
def branch(tmp_path: Path) -> tuple[Remote, Path]:
    bare = bare_repository(tmp_path / "plain.git")
    write_branch(bare, {ENTRY: entry(record(1)), "v1/sft_smoke/cpu_x1_float32/noise.json": "{"})
    return Remote(f"file://{bare}"), bare


def test_a_record_of_an_earlier_version_is_refused_in_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps(earlier(record(1))))
    with pytest.raises(EarlierRecord, match="has schema_version 1; this version reads 2"):
        load_record(path)
    now = write(tmp_path / "now.json", record(2))
    with pytest.raises(SystemExit, match="4"):
        main(["compare", str(now), "--baseline", str(path)])
    told = "".join(capsys.readouterr())
    assert "schema_version 1; this version reads 2" in " ".join(told.split())
    assert "Traceback" not in told


VERBS = {
    "report": "report {old}",
    "profile against it": "profile {now} --against {old}",
    "history": "history {mixed}",
    "compare with a history": "compare {now} --baseline {mixed}",
}


@pytest.mark.parametrize("verb", list(VERBS))
def test_every_verb_that_reads_a_record_of_an_earlier_version_refuses_it(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also one that somebody copied among the runs of this version: it is not counted."""
    old, now = tmp_path / "old.json", write(tmp_path / "now.json", record(2))
    old.write_text(json.dumps(earlier(record(1))))
    mixed = tmp_path / "mixed"
    place = save(mixed, record(3)).parent / "20260101T000001_run-00001.json"
    place.write_text(entry(record(1)))
    names = {"old": old, "now": now, "mixed": mixed}
    with pytest.raises(SystemExit, match="4"):
        main(VERBS[verb].format(**names).split())
    told = " ".join("".join(capsys.readouterr()).split())
    assert told.count("has schema_version 1; this version reads 2 (read it with the version") == 1
    assert "saved" not in told
    assert len([*mixed.glob("v2/*/*/*.json")]) == 2
    assert not [*tmp_path.rglob("*.html")]


@pytest.mark.parametrize("version", [3, "1", None, True])
def test_any_other_version_is_no_earlier_one(tmp_path: Path, version: object) -> None:
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps({**earlier(record(1)), "schema_version": version}))
    with pytest.raises(RecordError, match="this version reads 2") as caught:
        load_record(path)
    assert not isinstance(caught.value, EarlierRecord)


def test_a_branch_of_an_earlier_version_is_read_as_empty_and_replaced_by_the_next_push(
    branch: tuple[Remote, Path], tmp_path: Path
) -> None:
    remote, bare = branch
    assert pull(remote, tmp_path / "into") == git(bare, "rev-parse", REF)
    assert drawers(tmp_path / "into") == []
    push(remote, adding(2, 3), message="m")
    assert stored(remote, tmp_path / "again") == run_ids(2, 3)
    assert {
        path.partition("/")[0] for path in git(bare, "ls-tree", "-r", "--name-only", REF).split()
    } == {"v2"}


def test_what_does_not_belong_beside_an_earlier_history_is_still_refused(
    branch: tuple[Remote, Path], tmp_path: Path
) -> None:
    remote, bare = branch
    write_branch(bare, {ENTRY: entry(record(1)), "train.py": "print()"})
    with pytest.raises(RecordError, match=r"'train\.py' does not belong"):
        pull(remote, tmp_path / "into")


def test_a_history_of_an_earlier_version_is_no_baseline_and_says_so(tmp_path: Path) -> None:
    root = stored_before(tmp_path / "history")
    now = write(tmp_path / "now.json", record(9))
    found = compared_paths(Request((now,), (root,))).found
    assert (found.verdict, found.passed) == ("no-baseline", False)
    assert found.notes[-1] == (
        f"{root} holds only runs of an earlier version; this version begins a new history"
    )
    assert show_text(root) == f"{root} holds no runs"
    save(root, record(2))
    assert [one.run_id for place in drawers(root) for one in entries(place)] == run_ids(2)
    assert compared_paths(Request((now,), (root,))).found.baseline.run_ids == tuple(run_ids(2))


def test_a_folder_of_runs_is_compared_as_far_back_as_this_version_recorded(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for number in range(3):
        whole = record(number, run_id=f"2026010{number}-sft_smoke-x")
        path = write(runs / whole.run_id / "metrics.json", whole)
        if number < 2:
            path.write_text(json.dumps(earlier(whole)))
    now = write(tmp_path / "now.json", record(9))
    found = compared_paths(Request((now,), (runs,))).found
    assert found.baseline.run_ids == ("20260102-sft_smoke-x",)
    said = "20260101-sft_smoke-x and older runs are not used: an earlier version recorded them"
    assert said in found.notes
    (runs / "20260102-sft_smoke-x" / "metrics.json").unlink()
    alone = compared_paths(Request((now,), (runs,))).found
    assert (alone.verdict, alone.passed) == ("no-baseline", False)
