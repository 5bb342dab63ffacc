"""What of `canary exec` cannot be written, or is gone: the training goes on, and it is said."""

from __future__ import annotations

import errno
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from canary.protocol.job import JOB, Job, Listener, Result, StepFile, unwritten
from canary.record import jsonio
from canary.runner.local import LocalRunner
from canary.training.launch import TrainingLaunch, claimed_launch
from canary.training.recorder.collector import claimed_job
from tests.integration.exec.user_scripts import watched


def job_in(folder: Path) -> Job:
    (folder / "launch0").mkdir(parents=True)
    return Job(
        launch=0,
        config_file=str(folder / "config.yaml"),
        rows_file=str(folder / "steps.jsonl"),
        result_file=str(folder / "result.json"),
        scratch_dir=str(folder / "launch0"),
        cache_dir=str(folder),
        rows_dir=str(folder / "rows"),
    )


def full(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_folder_that_is_gone_is_not_the_trainings_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_in(tmp_path)
    (tmp_path / "launch0").rmdir()
    assert claimed_launch(job, 0.0) is None
    monkeypatch.setenv(JOB, str(tmp_path / "gone.json"))
    assert claimed_job() is None


def test_the_first_training_is_the_one_recorded(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    assert isinstance(claimed_launch(job, 0.0), TrainingLaunch)
    assert claimed_launch(job, 0.0) is None
    assert not unwritten(job).exists()


@pytest.mark.parametrize("lost", ["rows", "result", "begin"])
def test_a_full_disk_is_not_the_trainings_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    job = job_in(tmp_path)
    if lost == "begin":
        monkeypatch.setattr(jsonio, "replace_file", full)
        assert claimed_launch(job, 0.0) is None
    else:
        launch = claimed_launch(job, 0.0)
        assert launch is not None
        if lost == "rows":
            monkeypatch.setattr(StepFile, "append", full)
            launch.keep({"step": 1})
            launch.keep({"step": 2})
        else:
            monkeypatch.setattr(jsonio, "replace_file", full)
        launch.write(Result(status="completed"))
    assert unwritten(job).read_text() == "No space left on device"


def test_in_the_canarys_own_process_a_full_disk_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StepFile, "append", full)
    launch = TrainingLaunch(job_in(tmp_path), 0.0, own_process=True)
    with pytest.raises(OSError, match="No space left"):
        launch.keep({"step": 1})


def test_a_record_that_lacks_a_part_says_so(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    code = f"open({str(unwritten(job))!r}, 'w').close()"
    runner = LocalRunner(tmp_path / "log", os.environ, command=(sys.executable, "-c", code))
    result = runner.run(job, Listener(), time.monotonic() + 60)
    assert result.status == "failed"
    assert result.reason == (
        "the canary stopped recording before the training ended: no space left on its disk"
    )


def test_a_command_that_removes_the_runs_folder_is_told_so_in_one_line(tmp_path: Path) -> None:
    done = watched(tmp_path, "bash", "-c", "until rm -rf runs; do :; done; exit 3")
    assert done.code == 3, done.err
    assert "canary: failed: the run's folder was removed while the command ran" in done.err
    assert "unexpected" not in done.err
    assert "Traceback" not in done.err
    assert "record:" not in done.err.partition("failed:")[2]
