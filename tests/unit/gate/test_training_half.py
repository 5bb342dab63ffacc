"""The half that trains: what it leaves when inputs are wrong, time runs out, or it is ended."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from canary.campaign.ab import AbRequest
from canary.errors import MachineError, UsageError
from canary.gate import run_job
from canary.gate.base_config import fork_point
from canary.gate.inputs import TrainSettings
from canary.gate.records import load_records
from canary.gate.run_job import KEPT, UNFINISHED, keep, settings_of, train
from canary.gate.workspace import prepare, set_up
from tests.contract.git_server import git

CONFIG = "training_type: sft\nname: tiny\nmax_steps: 20\n"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "one.yaml").write_text(CONFIG)
    (checkout / "two.yaml").write_text(CONFIG.replace("tiny", "other"))
    return {
        "CANARY_CONFIG": "one.yaml\ntwo.yaml",
        "CANARY_GPUS": "none",
        "CANARY_CHECKOUT": str(checkout),
        "CANARY_RECORDS": str(tmp_path / "records"),
        "CANARY_SCRATCH": str(tmp_path / "scratch"),
        "PATH": "/usr/bin:/bin",
    }


def silent(line: str) -> None:
    """Nobody listens."""


def run(environ: dict[str, str], **changes: str) -> int:
    given = environ | changes
    (Path(given["CANARY_SCRATCH"])).mkdir(exist_ok=True)
    return train(TrainSettings.read(given), given, silent)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """Configs and settings of the runs, which train nothing."""
    calls: list[tuple[str, list[str]]] = []

    def alone(canary: Any, overrides: list[str]) -> None:
        calls.append((canary.config, overrides))

    monkeypatch.setattr("canary.gate.run_job._Canary.run_alone", alone)
    return calls


def test_each_config_has_its_part(environ: dict[str, str], ran: list[Any]) -> None:
    assert run(environ) == 0
    manifest = load_records(Path(environ["CANARY_RECORDS"])).manifest
    assert [(part.config, part.error) for part in manifest.parts] == [
        ("one.yaml", ""),
        ("two.yaml", ""),
    ]
    assert not manifest.error


def test_what_was_done_stays_judged_when_the_process_is_ended(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def alone(canary: Any, overrides: list[str]) -> None:
        if canary.config == "two.yaml":
            raise KeyboardInterrupt

    monkeypatch.setattr("canary.gate.run_job._Canary.run_alone", alone)
    with pytest.raises(KeyboardInterrupt):
        run(environ)
    manifest = load_records(Path(environ["CANARY_RECORDS"])).manifest
    assert [part.config for part in manifest.parts] == ["one.yaml"]
    assert manifest.error == UNFINISHED


@pytest.mark.parametrize("task", ["schedule", "nightly"])
def test_the_nightly_run_trains_the_longer_canary_first_where_there_is_one(
    environ: dict[str, str], ran: list[Any], task: str
) -> None:
    run(environ, CANARY_TASK=task)
    assert [config for config, _ in ran] == ["one.yaml", "two.yaml"]
    (Path(environ["CANARY_CHECKOUT"]) / "one-nightly.yaml").write_text(CONFIG)
    run(environ, CANARY_TASK=task)
    assert [config for config, _ in ran[2:]] == ["one-nightly.yaml", "one.yaml", "two.yaml"]
    run(environ, CANARY_TASK="push")
    assert [config for config, _ in ran[5:]] == ["one.yaml", "two.yaml"]


def test_a_bootstrap_trains_as_often_as_a_baseline_needs_and_each_run_may_fail_once(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = iter(["completed", "failed", "completed", "completed"])
    made: list[Path] = []

    def child(words: list[str], folder: Path, environment: Any) -> tuple[Path]:
        made.append(Path(words[words.index("--output-dir") + 1]) / f"run-{len(made)}")
        made[-1].mkdir(parents=True)
        made[-1].joinpath("metrics.json").write_text("{}")
        return (made[-1],)

    monkeypatch.setattr(run_job, "run_child", child)
    monkeypatch.setattr(run_job, "folder_left", lambda folder: folder)
    monkeypatch.setattr(
        run_job, "load_record", lambda folder: SimpleNamespace(status=next(ends), reason="")
    )
    assert run(environ, CANARY_TASK="bootstrap", CANARY_CONFIG="one.yaml") == 0
    records = Path(environ["CANARY_RECORDS"]) / "00-one"
    assert {path.name for path in (records / "current").iterdir()} == {"run-0", "run-2", "run-3"}
    assert [path.name for path in (records / "failed").iterdir()] == ["run-1"]


def test_a_run_ends_within_the_time_of_the_whole(environ: dict[str, str], ran: list[Any]) -> None:
    run(environ, CANARY_TIMEOUT_MINUTES="5")
    (_, overrides), *_ = ran
    (limit,) = [float(item.removeprefix("timeout=")) for item in overrides if "timeout" in item]
    assert 290 < limit <= 300


def test_a_config_for_which_no_time_is_left_says_so(
    environ: dict[str, str], ran: list[Any]
) -> None:
    ticks = iter([0.0, 1.0, 4000.0])
    settings = TrainSettings.read(environ)
    settings.scratch.mkdir()
    assert train(settings, environ, silent, lambda: next(ticks)) == 0
    first, second = load_records(settings.records).manifest.parts
    assert not first.error
    assert second.error == "all 60 minutes are used up (raise timeout-minutes)"


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"CANARY_CONFIG": "gone.yaml"}, 2, "no config at gone.yaml"),
        ({"CANARY_CONFIG": "../../etc/passwd"}, 2, "is outside the repository"),
        ({"CANARY_COMMAND": "python x.py"}, 2, "set training_type: exec"),
        ({"CANARY_WORKING_DIRECTORY": "nowhere"}, 2, "not a folder in the checkout"),
        ({"CANARY_CHECKOUT": "/nowhere/at/all"}, 2, "there is no checkout"),
    ],
)
def test_wrong_inputs_end_with_2_and_their_reason_in_the_records(
    environ: dict[str, str], changes: dict[str, str], code: int, said: str
) -> None:
    assert run(environ, **changes) == code
    manifest = load_records(Path(environ["CANARY_RECORDS"])).manifest
    reason = manifest.error or manifest.parts[0].error
    assert said in reason
    assert environ["CANARY_SCRATCH"] not in reason, "no path of the runner"


def test_inputs_that_cannot_be_read_are_told_in_the_records_too(environ: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        settings_of(environ | {"CANARY_TIMEOUT_MINUTES": "abc"})
    manifest = load_records(Path(environ["CANARY_RECORDS"])).manifest
    assert "input timeout-minutes is 'abc'" in manifest.error


def test_records_that_cannot_be_written_are_one_line(environ: dict[str, str]) -> None:
    with pytest.raises(MachineError, match="cannot write the records folder"):
        run(environ, CANARY_RECORDS="/proc/nowhere")


def test_a_scratch_folder_that_is_used_again_holds_the_new_checkout(
    environ: dict[str, str],
) -> None:
    settings = TrainSettings.read(environ)
    settings.scratch.mkdir()
    assert (prepare(settings, environ).folder / "one.yaml").read_text() == CONFIG
    (settings.checkout / "one.yaml").write_text("name: new\n")
    assert (prepare(settings, environ).folder / "one.yaml").read_text() == "name: new\n"


@pytest.mark.slow
def test_what_setup_made_is_there_for_the_one_training_after_it(environ: dict[str, str]) -> None:
    given = environ | {"CANARY_SETUP": "touch made"}
    settings = TrainSettings.read(given)
    settings.scratch.mkdir()
    assert set_up(settings, given, silent) == 0
    place = prepare(settings, given)
    assert (place.folder / "made").exists()
    assert place.python.is_relative_to(settings.scratch / "setup-env")
    assert not (prepare(settings, given).folder / "made").exists()


@pytest.mark.slow
def test_a_setup_that_fails_shows_its_log_and_leaves_its_reason(environ: dict[str, str]) -> None:
    given = environ | {"CANARY_SETUP": "echo out of luck >&2; exit 3"}
    settings = TrainSettings.read(given)
    settings.scratch.mkdir()
    said: list[str] = []
    assert set_up(settings, given, said.append) == 4
    assert "setup: out of luck" in said
    reason = load_records(settings.records).manifest.error
    assert reason == "setup: setup ended with exit code 3: out of luck (see setup.log)"


def test_pairs_begin_where_the_branch_left_its_base(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "one")
    fork = git(tmp_path, "rev-parse", "HEAD")
    git(tmp_path, "checkout", "-q", "-b", "change")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "two")
    git(tmp_path, "checkout", "-q", "main")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "three")
    tip = git(tmp_path, "rev-parse", "HEAD")
    git(tmp_path, "checkout", "-q", "change")
    assert fork_point(tmp_path, tip) == fork
    assert fork_point(tmp_path, "f" * 40) == "f" * 40


def test_a_reason_in_a_record_has_no_path_of_the_runner(environ: dict[str, str]) -> None:
    settings = TrainSettings.read(environ)
    place = settings.scratch / "workspace"
    run_folder = settings.scratch / "runs" / "run"
    run_folder.mkdir(parents=True)
    reason = f"FileNotFoundError: {place}/data.json; {settings.scratch}/sides/head/train.py:3"
    record = {"status": "failed", "reason": reason, "name": "tiny"}
    (run_folder / "metrics.json").write_text(json.dumps(record))
    keep(run_folder, settings.records, settings)
    kept = json.loads((settings.records / "run" / "metrics.json").read_text())
    assert kept == record | {"reason": "FileNotFoundError: data.json; train.py:3"}


def test_pairs_get_half_of_the_minutes(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[AbRequest] = []

    def none(request: AbRequest, say: Any) -> Any:
        asked.append(request)
        raise MachineError("no pair today")

    monkeypatch.setattr(run_job, "run_ab", none)
    base = {"CANARY_COMPARE": "ab", "CANARY_BASE_SHA": "f" * 40, "CANARY_CONFIG": "one.yaml"}
    run(environ, **base, CANARY_TIMEOUT_MINUTES="50")
    assert asked[0].budget_minutes == 25


def test_rows_that_are_too_large_stay(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KEPT, "steps.jsonl", 10)
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    (run_folder / "metrics.json").write_text("{}" * 20)
    (run_folder / "steps.jsonl").write_text("{}\n" * 20)
    keep(run_folder, tmp_path / "kept", TrainSettings.read(environ))
    assert [file.name for file in (tmp_path / "kept" / "run").iterdir()] == ["metrics.json"]


def test_a_profile_goes_with_the_record_and_a_trace_that_is_too_large_stays(
    environ: dict[str, str], tmp_path: Path
) -> None:
    small, large, linked = (tmp_path / name for name in ("small", "large", "linked"))
    for made in (small, large):
        (made / "profiler").mkdir(parents=True)
        (made / "profiler" / "operators.json").write_text("{}")
        (made / "profiler" / "trace.json").write_text("{}")
    with (large / "profiler" / "trace.json").open("wb") as stream:
        stream.truncate(int(KEPT["profiler/trace.json"]) + 1)
    linked.mkdir()
    (linked / "profiler").symlink_to(small / "profiler")
    for made in (small, large, linked):
        (made / "metrics.json").write_text("{}")
        keep(made, tmp_path / "records", TrainSettings.read(environ))
    kept = {
        str(path.relative_to(tmp_path / "records"))
        for path in (tmp_path / "records").rglob("*")
        if path.is_file()
    }
    assert kept == {
        "small/metrics.json",
        "small/profiler/operators.json",
        "small/profiler/trace.json",
        "large/metrics.json",
        "large/profiler/operators.json",
        "linked/metrics.json",
    }
