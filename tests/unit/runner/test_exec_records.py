"""What the record of a command states: what was asked and what was seen, and no default."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from canary.compare.exact.changes import config_changes
from canary.config.load import LoadedConfig, load_values
from canary.config.schema import CanaryConfig
from canary.errors import UsageError
from canary.protocol.job import Job, Listener, Result
from canary.protocol.trainer_config import as_config
from canary.record.folder import RunFolder
from canary.record.types import RunRecord
from canary.runner.exec.command import attached_environment
from canary.runner.exec.entry import ExecRequest, load_request
from canary.runner.session import Session
from tests.unit.comparing import record

SEEN = {
    "trainer": "trl.SFTTrainer",
    "training_type": "sft",
    "model_name": "own/model",
    "dtype": "bfloat16",
    "use_peft": False,
    "arguments": {"learning_rate": 1e-4, "per_device_train_batch_size": 8, "seed": 7},
}
NEVER_SEEN = ("dataset_name", "dataset_split", "trust_remote_code", "load_in_4bit", "speed")


def watched_command() -> LoadedConfig:
    return load_values(None, {"command": (["python", "train.py"], "canary exec")})


def of_exec(seen: dict[str, Any] | None = SEEN) -> RunRecord:
    """A record as `exec` leaves it; None: it never got to its training."""
    made = record()
    asked = watched_command().config.model_dump(mode="json", include={"command", "training_type"})
    made.config = asked | (as_config(seen) if seen else {})
    return made


def before_defaults_were_left_out(new: RunRecord) -> RunRecord:
    """The same as versions wrote it that stated each default of the schema."""
    old = new.model_copy(deep=True)
    old.config = CanaryConfig().model_dump(mode="json") | old.config
    return old


def test_the_record_of_a_command_states_no_default_of_a_built_in_canary(tmp_path: Path) -> None:
    session = Session(watched_command(), RunFolder.create(tmp_path, "run"), Listener())
    assert not set(NEVER_SEEN) & set(session.record.config)
    assert "model_name" not in session.record.config
    assert session.record.config["command"] == ["python", "train.py"]
    assert session.record.config["look_steps"] == 12


def test_a_setting_that_only_one_side_states_has_no_default_made_up_for_the_other() -> None:
    silent = of_exec(SEEN | {"arguments": {"learning_rate": 1e-4}})
    changes = {c.key: (c.baseline, c.current) for c in config_changes(silent, of_exec())}
    assert changes == {"batch_size": (None, 8), "seed": (None, 7)}


def test_a_command_that_never_trained_has_no_settings_to_differ_in() -> None:
    untrained = of_exec(None)
    assert config_changes(of_exec(), untrained) == ()
    assert config_changes(of_exec(), before_defaults_were_left_out(untrained)) == ()


@pytest.mark.parametrize(
    ("own", "left"),
    [(None, "dryrun"), ("offline", "offline")],
)
def test_a_training_that_is_cut_short_uploads_nothing_and_prints_nothing_about_it(
    tmp_path: Path, own: str | None, left: str
) -> None:
    """transformers prints a line on standard output where the mode is `offline`, and wandb takes
    `dryrun` for the same."""
    base = {} if own is None else {"WANDB_MODE": own}
    for stop_after, mode in ((2, left), (None, own)):
        job = Job(0, "c", "rows", "r", "s", "cache", "rows", stop_after=stop_after)
        made = attached_environment(base, job, tmp_path / "job", tmp_path / "marks")
        assert made.get("WANDB_MODE") == mode


def test_options_of_exec_lie_over_its_config(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("look_steps: 4\nthreads: 3\nprofiler:\n  start_step: 5\n")
    settings = ("look_steps=6", "profiler.num_steps=2")
    request = ExecRequest(("python", "t.py"), config=file, threads=2, settings=settings)
    loaded = load_request(request)
    config = loaded.config
    assert (config.look_steps, config.threads) == (6, 2)
    assert (config.profiler.start_step, config.profiler.num_steps) == (5, 2)
    assert loaded.origins["look_steps"] == "--set"
    assert loaded.origins["threads"] == "--threads"


def test_a_setting_that_no_command_has_is_refused() -> None:
    with pytest.raises(
        UsageError, match="learning_rate in --set is not used by training_type exec"
    ):
        load_request(ExecRequest(("python", "t.py"), settings=("learning_rate=1e-4",)))


@pytest.mark.parametrize(
    ("text", "given", "name"),
    [
        ("", None, "train"),
        ("name: nightly\n", None, "nightly"),
        ("name: nightly\n", "own", "own"),
    ],
)
def test_a_run_of_exec_is_named_after_its_program_unless_it_has_a_name(
    tmp_path: Path, text: str, given: str | None, name: str
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(f"{text}look_steps: 4\n")
    words = ("torchrun", "--nproc-per-node", "2", "src/train.py", "--lr", "1")
    assert load_request(ExecRequest(words, name=given, config=file)).config.name == name


@pytest.mark.parametrize("last", [False, True])
def test_a_folder_that_goes_while_the_record_is_written_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: bool
) -> None:
    folder = RunFolder.create(tmp_path, "run")
    session = Session(watched_command(), folder, Listener())
    shutil.rmtree(folder.path)
    seen = iter((True, False))
    monkeypatch.setattr(RunFolder, "is_there", lambda self: next(seen))
    if last:
        session.finish(Result("completed"))
    else:
        session.write()
    assert list(seen) == []
