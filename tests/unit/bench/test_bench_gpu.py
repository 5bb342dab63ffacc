"""The report of what was run on a GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench import gpu

JUNIT = """<testsuites><testsuite tests="4">
<testcase name="a"/><testcase name="b"><failure message="x"/></testcase>
<testcase name="c"><skipped message="no GPU"/></testcase><testcase name="d"/>
</testsuite></testsuites>"""


def test_tests_are_counted_by_how_they_ended(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(JUNIT)
    assert gpu.counted(tmp_path / "report.xml") == "2 passed, 1 failed, 1 skipped"


def test_the_table_has_a_row_a_training_and_tells_what_is_missing() -> None:
    told = {"trainer": "ppo", "what": "full", "step_ms": 1234.5, "peak_mb": 0.0123}
    lines = gpu.table([told]).splitlines()
    assert lines[2] == "| ppo | full | 1,234 | - | - | - | - | 0.0123 | - | - |"
    assert {line.count("|") for line in lines} == {len(gpu.COLUMNS) + 1}


def test_without_a_gpu_it_says_so_and_runs_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu, "device_name", lambda: None)
    monkeypatch.setattr(sys, "argv", ["bench.gpu"])
    assert gpu.main() == 4
    captured = capsys.readouterr()
    assert "no GPU found" in captured.err
    assert captured.out == ""
