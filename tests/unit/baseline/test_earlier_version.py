"""Records of an earlier version are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from canary.cli import main
from canary.errors import RecordError
from canary.record.folder import load_record
from canary.record.types import RunRecord
from tests.unit.comparing import record, write


def earlier(whole: RunRecord) -> dict[str, Any]:
    """The record as the version before wrote it, as far as a reader looks at it."""
    return {**whole.model_dump(mode="json"), "schema_version": 1, "probe": {"status": "completed"}}


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
