"""A run's folder: what a reader finds, whatever ended the run."""

import errno
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from canary.errors import InputError, MachineError, RecordError
from canary.record import jsonio
from canary.record.folder import RunFolder, load_record, new_run_id, start_record, this_process
from canary.record.types import Owner, RunRecord
from tests.unit.record.test_summary import row

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def started(tmp_path: Path) -> tuple[RunFolder, RunRecord]:
    folder = RunFolder.create(tmp_path, new_run_id("dpo", NOW))
    return folder, start_record(folder.path.name, "dpo", NOW, {"metrics_warmup_steps": 1})


def test_a_record_reads_back_as_written_with_attributes(tmp_path: Path) -> None:
    folder, record = started(tmp_path)
    record.perf.step_time.mean = 0.5
    record.stability.loss_values = [1.0, float("nan")]
    folder.write(record)
    again = load_record(folder.path)
    assert again.perf.step_time.mean == 0.5
    assert again.stability.loss_values[1] != again.stability.loss_values[1]
    assert again.status == "running"
    assert load_record(folder.metrics).run_id == record.run_id


def test_a_dead_owner_is_corrected_to_interrupted_from_the_rows(tmp_path: Path) -> None:
    folder, record = started(tmp_path)
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    record.owner = this_process().model_copy(update={"pid": child.pid})
    folder.write(record)
    rows = [row(1), row(2, 0.5), row(3, 0.5)]
    folder.steps.write_text("".join(jsonio.dumps(item) + "\n" for item in rows) + '{"step": 4')
    corrected = load_record(folder.path)
    assert corrected.status == "interrupted"
    assert "after step 3" in (corrected.reason or "")
    assert corrected.perf.step_time.mean == 0.5
    assert json.loads(folder.metrics.read_text())["status"] == "interrupted"


def test_a_running_record_of_another_host_is_left_alone(tmp_path: Path) -> None:
    folder, record = started(tmp_path)
    record.owner = Owner(pid=1, started=0.0, host="elsewhere")
    folder.write(record)
    assert load_record(folder.path).status == "running"


def test_a_full_disk_costs_the_reserve_and_not_the_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, record = started(tmp_path)
    real = jsonio.replace_file

    def full_until_the_reserve_is_gone(path: Path, text: str) -> None:
        if (folder.path / ".reserve").exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, text)

    monkeypatch.setattr(jsonio, "replace_file", full_until_the_reserve_is_gone)
    folder.finish(record.model_copy(update={"status": "failed", "reason": "disk"}))
    assert load_record(folder.path).status == "failed"


def test_no_place_for_a_record_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError, match=r"cannot write .*file: .*another folder"):
        RunFolder.create(tmp_path / "file", "run")


def test_a_record_that_was_partly_written_stays(tmp_path: Path) -> None:
    folder, record = started(tmp_path)
    folder.write(record)
    with pytest.raises(ZeroDivisionError), folder.or_nothing():
        print(1 / 0)
    assert {*folder.path.iterdir()} == {folder.alerts, folder.metrics, folder.steps}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a record"),
        ("[]", "expected a JSON object"),
        ('{"schema_version": 99}', "schema_version 99"),
        ('{"schema_version": 2}', "run_id"),
        ('{"schema_version": 2, "run_id": NaN}', "not valid JSON"),
        ('{"schema_version": 2, "run_id": "a", "timestamp": "b", "odd": 1}', "odd"),
    ],
)
def test_what_is_not_a_record_says_why(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "metrics.json"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        load_record(file)


def test_a_missing_record_says_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="name a run's folder"):
        load_record(tmp_path / "nothing")


@pytest.mark.parametrize(
    "steps", ['{"step": "one", "time": "soon"}\n', "[1]\n", '{"time": 1}\n', '{"step": 1}\nx\n']
)
def test_steps_of_a_stranger_that_are_none_are_an_error_of_ours(tmp_path: Path, steps: str) -> None:
    """The process of a record that says `running` is gone: what its steps tell is read."""
    folder, record = started(tmp_path)
    assert record.owner is not None
    gone = record.owner.model_copy(update={"pid": 2**22 + 1, "started": 1.0})
    folder.write(record.model_copy(update={"owner": gone}))
    folder.steps.write_text(steps)
    with pytest.raises(RecordError, match="train again"):
        load_record(folder.path)


def test_runs_in_the_default_folder_leave_a_checkout_clean(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for output_dir in (tmp_path / "canary_output", tmp_path / "canary_output" / "ab-1" / "base"):
        RunFolder.create(output_dir, "one")
    (tmp_path / "canary_output" / "ab-1" / "comparison.txt").write_text("Pass.")
    status = subprocess.run(
        ["git", "-C", tmp_path, "status", "--porcelain"], check=True, capture_output=True, text=True
    )
    assert status.stdout == ""


def test_no_other_folder_gets_a_gitignore_and_none_is_replaced(tmp_path: Path) -> None:
    checkout = tmp_path / "canary_output"
    (checkout / ".git").mkdir(parents=True)
    RunFolder.create(checkout, "one")
    RunFolder.create(tmp_path / "results", "one")
    assert not list(tmp_path.rglob(".gitignore"))
    linked = tmp_path / "x" / "canary_output"
    linked.mkdir(parents=True)
    (linked / ".gitignore").symlink_to(tmp_path / "elsewhere")
    RunFolder.create(linked, "one")
    assert not (tmp_path / "elsewhere").exists()
