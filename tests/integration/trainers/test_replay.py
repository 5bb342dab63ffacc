"""Completions kept by one training are what another trains on, however it asks for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from canary.training.trainers import WorkloadSpec, build_trainer
from canary.training.trainers.replay import RECORD, REPLAY, completions_of, read
from tests.integration.trainers.test_workload import logged, make_spec

pytestmark = [pytest.mark.train, pytest.mark.usefixtures("one_thread")]

STEPS = 3
"""Of a training of `make_spec`."""


def train(folder: Path, **changes: Any) -> tuple[Any, WorkloadSpec]:
    """A short training, with what the environment asks for its completions."""
    changes = {"gradient_accumulation_steps": 2, "max_new_tokens": 12, **changes}
    spec = make_spec(folder, "grpo", **changes)
    spec.scratch_dir.mkdir(parents=True, exist_ok=True)
    trainer = build_trainer(spec)
    with completions_of(trainer, spec.notes):
        trainer.train()
    return trainer, spec


def test_a_replay_trains_on_what_was_recorded_however_it_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "completions.json"
    monkeypatch.setenv(RECORD, str(file))
    first, _ = train(tmp_path / "record")
    monkeypatch.delenv(RECORD)
    monkeypatch.setenv(REPLAY, str(file))
    again, spec = train(tmp_path / "replay")
    by_two = {"trainer_args": {"steps_per_generation": 1}}
    pieces, _ = train(tmp_path / "pieces", **by_two)
    monkeypatch.delenv(REPLAY)
    free, _ = train(tmp_path / "free", **by_two)
    assert any("replayed" in note for note in spec.notes)
    assert sum(map(len, read(file).values())) == STEPS * 2 * 2
    for name, value in first.model.named_parameters():
        assert torch.equal(value, again.model.get_parameter(name)), name
    rewards, lengths = logged(first, "reward"), logged(first, "completions/mean_length")
    assert logged(pieces, "reward") == pytest.approx(rewards)
    assert logged(pieces, "completions/mean_length") == lengths
    assert logged(free, "reward") != pytest.approx(rewards)
