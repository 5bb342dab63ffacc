"""Completions kept by one training are what another trains on, however it asks for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from canary.config.ppo import PPOConfig
from canary.errors import InputError, RunFailed
from canary.workload import WorkloadSpec, build_trainer
from canary.workload.replay import RECORD, REPLAY, completions_of, read, write
from tests.integration.conftest import run_config, settings
from tests.integration.test_workload import logged, make_spec

pytestmark = pytest.mark.train


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def train(folder: Path, training_type: str, **changes: Any) -> tuple[Any, WorkloadSpec]:
    """A short training, with what the environment asks for its completions."""
    changes = {"gradient_accumulation_steps": 2, "max_new_tokens": 12, **changes}
    spec = make_spec(folder, training_type, **changes)
    spec.scratch_dir.mkdir(parents=True, exist_ok=True)
    trainer = build_trainer(spec)
    with completions_of(trainer, "probe", spec.notes):
        trainer.train()
    return trainer, spec


@pytest.mark.parametrize("training_type", ["grpo", "rloo"])
def test_a_replay_trains_on_what_was_recorded_however_it_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, training_type: str
) -> None:
    file = tmp_path / "completions.json"
    monkeypatch.setenv(RECORD, str(file))
    first, _ = train(tmp_path / "record", training_type)
    monkeypatch.delenv(RECORD)
    monkeypatch.setenv(REPLAY, str(file))
    again, spec = train(tmp_path / "replay", training_type)
    by_two = {"trainer_args": {"steps_per_generation": 1}}
    pieces, _ = train(tmp_path / "pieces", training_type, **by_two)
    monkeypatch.delenv(REPLAY)
    free, _ = train(tmp_path / "free", training_type, **by_two)
    assert any("given again" in note for note in spec.notes)
    assert sum(map(len, read(file, "probe").values())) == 3 * 2 * 2
    for name, value in first.model.named_parameters():
        assert torch.equal(value, again.model.get_parameter(name)), name
    rewards, lengths = logged(first, "reward"), logged(first, "completions/mean_length")
    assert logged(pieces, "reward") == pytest.approx(rewards)
    assert logged(pieces, "completions/mean_length") == lengths
    assert logged(free, "reward") != pytest.approx(rewards)


def test_neither_recording_nor_replaying_changes_what_else_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "completions.json"
    drawn = []
    for variable in (RECORD, REPLAY):
        monkeypatch.setenv(variable, str(file))
        train(tmp_path / variable, "grpo")
        monkeypatch.delenv(variable)
        drawn.append(torch.rand(3))
    assert torch.equal(*drawn)


def test_a_prompt_that_was_not_recorded_is_a_plain_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "completions.json"
    monkeypatch.setenv(REPLAY, str(file))
    with pytest.raises(InputError, match="holds no completions"):
        train(tmp_path / "absent", "grpo")
    file.write_text(json.dumps({"probe": [[[1, 2], [[3]]]]}))
    with pytest.raises(RunFailed, match=r"completions\.json holds no completion of a prompt of"):
        train(tmp_path / "unknown", "grpo")


def test_both_kinds_of_launch_keep_their_own(tmp_path: Path) -> None:
    file = tmp_path / "completions.json"
    write(file, "probe", {(1, 2): [[3]]})
    write(file, "measured", {(1, 2): [[4]]})
    assert read(file, "probe") == {(1, 2): [[3]]}
    assert read(file, "measured") == {(1, 2): [[4]]}


def test_runs_of_the_command_line_keep_and_give_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "completions.json"
    values = settings("grpo", max_steps=2, probe_steps=0)
    monkeypatch.setenv(RECORD, str(file))
    first = run_config(tmp_path / "record", values)
    monkeypatch.delenv(RECORD)
    monkeypatch.setenv(REPLAY, str(file))
    again = run_config(tmp_path / "replay", values | {"temperature": 2.0})
    assert (first.code, again.code) == (0, 0), first.err + again.err
    assert any("given again" in note for note in again.record().notes)
    for name in ("completion_tokens", "reward"):
        ours, theirs = ([_figure(row, name) for row in run.rows()] for run in (again, first))
        assert ours == theirs
        assert None not in ours


def _figure(row: dict[str, Any], name: str) -> Any:
    return row["rl"].get(name) if name in row["rl"] else row.get(name)


def test_ppo_on_given_completions_learns_the_same_with_every_switch_the_other_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "completions.json"
    other = {
        "advantages": "loop",
        "logprobs": "whole",
        "shared_forward": False,
        "kv_cache": False,
        "rollout_batch": "micro",
        "lengths": "fixed",
        "optimizer": "loop",
    }
    job = {"ppo": PPOConfig(num_mini_batches=2, ppo_epochs=2), "temperature": 1.0}
    found = []
    for variable, switches in ((RECORD, {}), (REPLAY, other), (REPLAY, {"lengths": "bucketed"})):
        monkeypatch.setenv(variable, str(file))
        folder = tmp_path / f"{variable}{len(switches)}"
        trainer, _ = train(folder, "ppo", dataset_size=32, speed=switches, **job)
        monkeypatch.delenv(variable)
        found.append([logged(trainer, name) for name in ("policy_loss", "value_loss", "kl")])
    for metric, plain in enumerate(found[0]):
        for switched in found[1:]:
            assert switched[metric] == pytest.approx(plain, rel=1e-4, abs=2e-6)
