"""Runs that an earlier version stored are not read, and never stand in the way of a new history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from canary.baseline.branch import Remote, pull, push
from canary.baseline.history import is_history
from canary.cli import main
from canary.errors import RecordError
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
    with pytest.raises(RecordError, match="has schema_version 1; this version reads 2"):
        load_record(path)
    now = write(tmp_path / "now.json", record(2))
    with pytest.raises(SystemExit, match="4"):
        main(["compare", str(now), "--baseline", str(path)])
    told = "".join(capsys.readouterr())
    assert "schema_version 1; this version reads 2" in " ".join(told.split())
    assert "Traceback" not in told


@pytest.mark.parametrize("version", [3, "1", None, True])
def test_any_other_version_is_refused_too(tmp_path: Path, version: object) -> None:
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps({**earlier(record(1)), "schema_version": version}))
    with pytest.raises(RecordError, match="this version reads 2"):
        load_record(path)


def test_a_branch_of_an_earlier_version_is_read_as_empty_and_replaced_by_the_next_push(
    branch: tuple[Remote, Path], tmp_path: Path
) -> None:
    remote, bare = branch
    assert pull(remote, tmp_path / "into") == git(bare, "rev-parse", REF)
    assert not is_history(tmp_path / "into")
    push(remote, adding(2, 3), message="m")
    assert stored(remote, tmp_path / "again") == run_ids(2, 3)
    assert {
        path.partition("/")[0] for path in git(bare, "ls-tree", "-r", "--name-only", REF).split()
    } == {"v2"}
