"""`canary ab` on two commits and two configs, through the real command line."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest
import yaml

from canary.record.folder import load_record
from canary.runner.warm import WARM_SOCKET
from tests.integration.conftest import PATIENT, Finished, canary, settings, write_config
from tests.integration.exec.user_scripts import sft_script, write_data

pytestmark = [pytest.mark.train, pytest.mark.slow]

SMALL = {"max_steps": 10, "metrics_warmup_steps": 2, "dataset_size": 60}


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def commit(folder: Path, message: str) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", message)


def started(
    *arguments: str, cwd: Path, more: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "canary.cli", *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(more or {})},
    )


def trains(process: psutil.Process) -> bool:
    """Whether it prints to the log of a run."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process.pid}/fd/1").readlink().name == "log.txt"
    return False


def wait_for(said: str, process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    assert any(line.startswith(said) for line in process.stderr)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a config and data of its own; the second commit takes rows away."""
    root = tmp_path_factory.mktemp("ab") / "theirs"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    git(root, "config", "user.email", "a@example.org")
    git(root, "config", "user.name", "A")
    rows = [{"prompt": f"{n} + {n} =", "completion": f" {2 * n}"} for n in range(60)]
    (root / ".gitignore").write_text("canary_output/\n")
    data = root / "data.jsonl"
    write_config(root, settings("sft", dataset_name="data.jsonl", **SMALL | {"dataset_size": None}))
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    commit(root, "first")
    data.write_text("".join(json.dumps(row) + "\n" for row in rows[::-1]))
    commit(root, "rows in another order")
    return root


@pytest.fixture(scope="module")
def compared(repository: Path) -> tuple[Finished, Path]:
    """Head against the commit before it, from a checkout with a change of its own."""
    (repository / "data.jsonl").write_text("changed, and not committed\n")
    sides = ("--base", "HEAD~1", "--head", "HEAD")
    arguments = ("canary.yaml", *sides, "--pairs", "2", "--format", "json")
    return canary("ab", *arguments, cwd=repository), repository


def test_each_commit_trains_on_its_own_data(compared: tuple[Finished, Path]) -> None:
    finished, _ = compared
    found = json.loads(finished.out)
    assert finished.code == 1, finished.err
    assert found["verdict"] == "changed"
    assert found["first_difference"]["stage"] == "data"
    assert found["baseline"]["sha"] != found["current"]["sha"]
    assert not found["config_differences"]


def test_the_checkout_is_untouched_and_nothing_is_left(compared: tuple[Finished, Path]) -> None:
    _, root = compared
    assert (root / "data.jsonl").read_text() == "changed, and not committed\n"
    assert git(root, "status", "--porcelain") == "M data.jsonl"
    assert len(git(root, "worktree", "list").splitlines()) == 1


def test_progress_shows_runs_in_turn_and_the_interval(compared: tuple[Finished, Path]) -> None:
    finished, _ = compared
    runs = [line.split()[2] for line in finished.err.splitlines() if line.startswith("pair ")]
    assert runs == ["base", "head", "head", "base"]
    assert "note: 1 uncommitted file in the working tree" in finished.err
    assert len(re.findall(r"(?:median step time|CPU time per step) [+-]", finished.err)) == 2
    # Longer rows are slower; on a busy machine that is not decided.
    assert re.search(r"after 2 pairs: (regression|changed)", finished.err)


def test_records_and_comparison_stay(compared: tuple[Finished, Path]) -> None:
    finished, root = compared
    (folder,) = (root / "canary_output").glob("ab-*")
    for role in ("base", "head"):
        records = [load_record(path.parent) for path in (folder / role).glob("*/metrics.json")]
        assert [record.status for record in records] == ["completed"] * 2
        assert all(record.exact for record in records)
        assert all(not record.git["dirty"] for record in records)
    assert json.loads((folder / "comparison.json").read_text()) == json.loads(finished.out)
    assert (folder / "comparison.md").read_text().startswith(("**❌ Regression", "**🟠 Changed"))


def test_two_configs_of_one_commit(tmp_path: Path) -> None:
    base = settings("sft", **SMALL, thresholds=PATIENT)
    write_config(tmp_path, base, "base.yaml")
    write_config(tmp_path, base | {"learning_rate": 2e-3}, "head.yaml")
    configs = ("base.yaml", "head.yaml")
    process = started(
        "ab", *configs, "--pairs", "1", "--format", "json", "--accept", "tuned", cwd=tmp_path
    )
    wait_for("after 1 pair: changed", process)
    process.send_signal(signal.SIGTERM)  # Too late: the verdict is known.
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 0
    found = json.loads(out)
    assert found["verdict"] == "changed"
    assert found["accepted"] == "tuned"
    assert [change["key"] for change in found["config_differences"]] == ["learning_rate"]


def test_looks_alone_tell_what_differs_and_measure_no_speed(repository: Path) -> None:
    arguments = ("canary.yaml", "--base", "HEAD~1", "--head", "HEAD", "--format", "json")
    finished = canary("ab", *arguments, "--exact", "-o", "exact", cwd=repository)
    assert finished.code == 1, finished.err
    found = json.loads(finished.out)
    assert found["verdict"] == "changed"
    assert found["first_difference"]["stage"] == "data"
    assert found["notes"][0] == "each training ended after its look: the speed was not measured"
    lines = [line for line in finished.err.splitlines() if line.startswith("pair ")]
    told = [line.split()[2:5] for line in lines]
    assert told == [["base", "only", "the"], ["head", "only", "the"]]
    (folder,) = (repository / "exact").iterdir()
    runs = [load_record(path.parent) for path in folder.glob("*/*/metrics.json")]
    assert len(runs) == 3, "a second look at the base shows that equal runs are equal"
    assert all(run.config["exact"] and run.exact for run in runs)


def test_looks_alone_of_a_command_tell_what_a_commit_changed(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "config", "user.email", "a@example.org")
    git(tmp_path, "config", "user.name", "A")
    (tmp_path / ".gitignore").write_text("canary_output/\n")
    config = {"name": "own", "command": [sys.executable, "train.py"], "look_steps": 3}
    (tmp_path / "canary.yaml").write_text(yaml.safe_dump(config))
    write_data(tmp_path)
    for message, rate in (("first", 5e-4), ("another rate", 1e-3)):
        sft_script(tmp_path, rate=rate)
        commit(tmp_path, message)
    arguments = ("canary.yaml", "--base", "HEAD~1", "--exact", "--format", "json")
    finished = canary("ab", *arguments, cwd=tmp_path)
    assert finished.code == 1, finished.err
    found = json.loads(finished.out)
    assert found["verdict"] == "changed", "the trainer's own settings are part of the record"
    assert "learning_rate" in {change["key"] for change in found["config_differences"]}
    assert "first_update" in {difference["stage"] for difference in found["differences"]}
    assert not (tmp_path / "final").exists()


def test_equal_looks_pass(tmp_path: Path) -> None:
    base = settings("sft", **SMALL)
    write_config(tmp_path, base, "base.yaml")
    write_config(tmp_path, base | {"timeout": 555}, "head.yaml")
    configs = ("base.yaml", "head.yaml")
    finished = canary("ab", *configs, "--exact", "--format", "json", cwd=tmp_path)
    assert finished.code == 0, finished.err
    found = json.loads(finished.out)
    assert found["verdict"] == "pass"
    assert not [check for check in found["checks"] if check["status"] == "fail"]


def test_a_head_that_crashes_twice_is_a_regression(repository: Path) -> None:
    git(repository, "checkout", "-q", "--", "data.jsonl")
    git(repository, "checkout", "-q", "-b", "broken")
    path = repository / "canary.yaml"
    values = yaml.safe_load(path.read_text()) | {"timeout": 1}
    path.write_text(yaml.safe_dump(values))
    commit(repository, "too little time")
    finished = canary("ab", "canary.yaml", "--base", "main", "--format", "json", cwd=repository)
    git(repository, "checkout", "-q", "main")
    found = json.loads(finished.out)
    assert found["verdict"] == "regression"
    assert "in the 2 current runs only" in found["first_line"]
    assert finished.code == 1


def test_an_interrupted_ab_leaves_no_worktree(repository: Path) -> None:
    process = started("ab", "canary.yaml", "--base", "main~1", cwd=repository)
    wait_for("records:", process)
    assert process.stderr is not None
    assert len(git(repository, "worktree", "list").splitlines()) == 3
    time.sleep(1)
    for _ in range(3):
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
    said = process.stderr.read()
    assert process.wait(60) == 4
    assert said.splitlines()[-1] == "canary: interrupted"
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_a_killed_ab_leaves_no_training_and_no_worktree_for_long(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(WARM_SOCKET, raising=False)  # It would be the tests' own.
    more = {"TMPDIR": str(tmp_path)}
    words = ("ab", "canary.yaml", "--base", "main~1", "--exact")
    process = started(*words, cwd=repository, more=more)
    wait_for("records:", process)
    ours: list[psutil.Process] = []
    while sum(map(trains, ours)) < 2 and process.poll() is None:
        time.sleep(0.1)
        ours = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    assert process.wait() == -signal.SIGKILL, "it ended before both trained"
    _, alive = psutil.wait_procs(ours, timeout=60)
    assert not alive
    assert canary("ab", "canary.yaml", "--base", "nowhere", cwd=repository, more=more).code == 2
    assert len(git(repository, "worktree", "list").splitlines()) == 1
    assert not list(tmp_path.glob("canary-*"))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("missing.yaml", "--base", "HEAD"), "no config at missing.yaml"),
        (("canary.yaml",), "nothing to compare: both sides have the same config and commit"),
        (("--base", "HEAD"), "no config for base"),
    ],
)
def test_wrong_requests_are_one_line(
    repository: Path, arguments: tuple[str, ...], line: str
) -> None:
    finished = canary("ab", *arguments, cwd=repository)
    assert finished.code == 2
    assert line in finished.err.splitlines()[-1]
    assert "Traceback" not in finished.err
    assert finished.out == ""


def test_a_config_that_is_not_committed_is_used_for_both_sides(repository: Path) -> None:
    (repository / "new.yaml").write_text("training_type: sft\nmax_step: 5\n")
    finished = canary("ab", "new.yaml", "--base", "HEAD~1", cwd=repository)
    (repository / "new.yaml").unlink()
    assert finished.code == 2
    assert "note: new.yaml is not in base" in finished.err
    assert "so it uses your file" in finished.err
    assert "unknown key 'max_step'" in finished.err.splitlines()[-1]
