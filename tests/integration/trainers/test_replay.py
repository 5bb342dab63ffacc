"""Completions kept by one training are what another trains on, however it asks for them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch

from canary.ladder.guard import Verdict, compare
from canary.record.exact import DrawnStep, Exact
from canary.training.trainers import WorkloadSpec, build_trainer
from canary.training.trainers.replay import RECORD, REPLAY, completions_of, read
from tests.integration.trainers.test_workload import logged, make_spec

pytestmark = [pytest.mark.train, pytest.mark.usefixtures("one_thread")]

STEPS = 3
"""Of a training of `make_spec`."""


def train(folder: Path, training_type: str, **changes: Any) -> tuple[Any, WorkloadSpec]:
    """A short training, with what the environment asks for its completions."""
    changes = {"gradient_accumulation_steps": 2, "max_new_tokens": 12, **changes}
    spec = make_spec(folder, training_type, **changes)
    spec.scratch_dir.mkdir(parents=True, exist_ok=True)
    trainer = build_trainer(spec)
    with completions_of(trainer, STEPS, spec.notes):
        trainer.train()
    return trainer, spec


@pytest.mark.parametrize("training_type", ["grpo"])
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
    assert any("replayed" in note for note in spec.notes)
    assert sum(map(len, read(file).values())) == STEPS * 2 * 2
    for name, value in first.model.named_parameters():
        assert torch.equal(value, again.model.get_parameter(name)), name
    rewards, lengths = logged(first, "reward"), logged(first, "completions/mean_length")
    assert logged(pieces, "reward") == pytest.approx(rewards)
    assert logged(pieces, "completions/mean_length") == lengths
    assert logged(free, "reward") != pytest.approx(rewards)


@pytest.mark.parametrize("training_type", ["ppo"])
def test_a_look_at_given_completions_sees_what_would_have_been_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, training_type: str
) -> None:
    """Off by 2e-6 in float32 where all is well, by 4 to 17 with either fault."""
    seen = {}
    for name, plant in {"": None, "off": _cache_off_by_one, "random": _random_tokens}.items():
        monkeypatch.setenv(REPLAY if name else RECORD, str(tmp_path / "completions.json"))
        seen[name] = _drawn(tmp_path / f"run-{name}", training_type, plant)
        monkeypatch.delenv(RECORD, raising=False)
    assert [step["step"] for step in seen[""]] == [1, 3]
    assert all(step["tokens"] == step["ranked"] > 20 for step in seen[""])
    assert _verdict(seen[""], seen[""]).holds
    for name in ("off", "random"):
        assert _verdict(seen[""], seen[name]).broken, name
    assert max(step["gap"] for step in seen["off"]) > 1
    assert min(step["rank"] for step in seen["random"]) > 0.8


def _drawn(folder: Path, training_type: str, plant: Any) -> list[Any]:
    spec = make_spec(folder, training_type, gradient_accumulation_steps=2, max_new_tokens=24)
    spec.scratch_dir.mkdir(parents=True, exist_ok=True)
    trainer = build_trainer(spec)
    if plant is not None:
        plant(getattr(trainer.model, "policy", trainer.model))
    with completions_of(trainer, STEPS, spec.notes) as watch:
        trainer.train()
    assert watch is not None
    return list(watch.described()["steps"])


def _verdict(baseline: list[DrawnStep], level: list[DrawnStep]) -> Verdict:
    def exact(steps: list[DrawnStep]) -> Exact:
        return {"trajectory": {"losses": [0.5] * 3}, "generation": {"steps": steps}}

    return compare(exact(baseline), exact(level), "grpo", "float32")


def _cache_off_by_one(model: Any) -> None:
    """What the cache is continued with stands a place too far."""
    original = model.forward

    @functools.wraps(original)
    def forward(*args: Any, **kwargs: Any) -> Any:
        cache, places = kwargs.get("past_key_values"), kwargs.get("position_ids")
        if cache is not None and cache.get_seq_length() and places is not None:
            kwargs["position_ids"] = places + 1
        return original(*args, **kwargs)

    model.forward = forward


def _random_tokens(model: Any) -> None:
    """The right logits, and tokens drawn from nowhere."""
    original = model.generate

    @functools.wraps(original)
    def generate(*args: Any, **kwargs: Any) -> Any:
        output = original(*args, **kwargs)
        ids = kwargs["input_ids"] if "input_ids" in kwargs else args[0]
        completions = getattr(output, "sequences", output)[:, ids.shape[1] :]
        completions.random_(5, 250)
        return output

    model.generate = generate
