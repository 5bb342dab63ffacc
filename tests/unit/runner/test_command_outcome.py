"""What is said of a command that ended: how far its training was, or why none was seen."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from canary.protocol.job import TORCH_LOOP, Job, Result
from canary.runner.exec.command import CommandRunner, marks_of
from canary.runner.exec.streams import log_only


@pytest.fixture
def job(tmp_path: Path) -> Job:
    made = Job(
        launch=0,
        config_file="",
        rows_file=str(tmp_path / "steps.jsonl"),
        result_file=str(tmp_path / "launch0.result.json"),
        scratch_dir=str(tmp_path),
        cache_dir="",
        rows_dir="",
    )
    marks_of(made).mkdir()
    return made


def outcome(job: Job, code: int, seen: Result | None = None) -> Result:
    """The result of a command that exited with this code after twenty steps."""
    watch: Any = SimpleNamespace(
        outcome=lambda: seen, printed=lambda: "", how_far=lambda: "after step 20"
    )
    runner = CommandRunner(Path("log.txt"), {}, ("python", "train.py"), log_only)
    return runner._outcome(job, code, watch)


@pytest.mark.parametrize(
    ("trainer", "said"),
    [
        (TORCH_LOOP, "after step 20, the command exited with code 7"),
        ("trl.SFTTrainer", "the training completed, then the command exited with code 7"),
    ],
)
def test_only_a_trainer_or_a_recorder_says_that_its_training_completed(
    job: Job, trainer: str, said: str
) -> None:
    """`raise SystemExit(7)` may leave a plain loop in its middle."""
    found = outcome(job, 7, Result("completed", training={"trainer": trainer}))
    assert (found.status, found.reason, found.command_code) == ("failed", said, 7)


@pytest.mark.parametrize(
    ("marks", "said"),
    [
        ({"backward.1": "48", "backward.2": ""}, "backward ran 48 times, but no torch optimizer"),
        ({"backward.1": "48", "optimizer.2": ""}, "it made a torch optimizer, but"),
        ({"torch.1": ""}, "it imported torch, but made no torch optimizer"),
    ],
)
def test_a_loop_that_steps_by_hand_is_told_to_use_a_recorder(
    job: Job, marks: dict[str, str], said: str
) -> None:
    for name, text in marks.items():
        (marks_of(job) / name).write_text(text)
    found = outcome(job, 0)
    assert found.usage_error
    assert said in str(found.reason)
    assert "canary.Recorder" in str(found.hint)
    assert ("changes its parameters itself" in str(found.hint)) == ("backward ran" in said)


def test_what_the_canary_lacks_beside_a_torch_of_another_environment_is_named(job: Job) -> None:
    (marks_of(job) / "broken.1").write_text("ModuleNotFoundError: No module named 'numpy'")
    assert outcome(job, 0).hint == "install numpy beside its torch"
