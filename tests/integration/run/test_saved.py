"""The trained model that a run leaves: loadable by name, whole, and never over something else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from canary.config.load import load_values
from canary.errors import ConfigError, InputError
from canary.protocol.saved_model import MARK, leave_model, require_place, require_savable
from canary.training.trainers import WorkloadSpec, build_trainer
from tests.integration.conftest import run_config, settings

pytestmark = [pytest.mark.train, pytest.mark.usefixtures("one_thread")]

STEPS = 2


def spec_of(tmp_path: Path, training_type: str, **changes: Any) -> WorkloadSpec:
    given = settings(training_type, **{"max_steps": STEPS, "learning_rate": 1e-3, **changes})
    given = {**given, "metrics_warmup_steps": 0, "name": "left"}
    config = load_values(None, {key: (value, "here") for key, value in given.items()}).config
    return WorkloadSpec(config, tmp_path / "scratch", tmp_path / "cache", STEPS, 1)


def logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(input_ids=ids).logits


@pytest.mark.parametrize(
    ("training_type", "family", "use_peft"),
    [
        ("reward", AutoModelForSequenceClassification, True),
        ("sft", AutoModelForCausalLM, False),
        ("ppo", AutoModelForCausalLM, True),
    ],
)
def test_what_was_trained_is_what_is_loaded(
    tmp_path: Path, training_type: str, family: Any, use_peft: bool
) -> None:
    spec = spec_of(tmp_path, training_type, use_peft=use_peft)
    trainer = build_trainer(spec)
    ids = torch.arange(10, 30).unsqueeze(0)
    policy = getattr(trainer.model, "policy", trainer.model)  # of PPO, without the value head
    before = logits(policy, ids)
    trainer.train()
    trained = logits(policy, ids)
    assert not torch.equal(before, trained)

    leave_model(trainer, spec, tmp_path / "out" / "left")

    model = family.from_pretrained(str(tmp_path / "out" / "left"))
    torch.testing.assert_close(logits(model, ids), trained, rtol=1e-5, atol=1e-5)
    assert not hasattr(model, "peft_config")
    tokenizer = AutoTokenizer.from_pretrained(str(tmp_path / "out" / "left"))
    assert tokenizer.chat_template == trainer.processing_class.chat_template
    about = json.loads((tmp_path / "out" / "left" / MARK).read_text())
    assert about["steps"] == STEPS
    assert about.get("not_saved") == ("value head" if training_type == "ppo" else None)
    assert model.config.use_cache is True, "as its source has it, whatever the trainer set"


def test_a_model_left_before_is_replaced_whole(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "reward")
    trainer = build_trainer(spec)
    folder = tmp_path / "left"
    leave_model(trainer, spec, folder)
    (folder / "of_before.txt").touch()
    leave_model(trainer, spec, folder)
    assert not (folder / "of_before.txt").exists()
    assert (folder / "model.safetensors").exists()
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_a_save_that_fails_leaves_the_older_model_and_no_half_of_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(tmp_path, "reward")
    trainer = build_trainer(spec)
    folder = tmp_path / "left"
    leave_model(trainer, spec, folder)
    before = (folder / "model.safetensors").read_bytes()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(trainer.processing_class, "save_pretrained", full)
    with pytest.raises(OSError, match="No space"):
        leave_model(trainer, spec, folder)
    assert (folder / "model.safetensors").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".left")] == []


def test_what_no_canary_left_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    require_place(tmp_path / "empty")
    require_place(tmp_path / "missing" / "deep")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    with pytest.raises(InputError, match="holds files that no canary saved"):
        require_place(tmp_path / "mine")
    with pytest.raises(InputError, match="is a file"):
        require_place(tmp_path / "mine" / "thesis.txt")
    with pytest.raises(InputError, match=r"thesis.txt' is a file"):
        require_place(tmp_path / "mine" / "thesis.txt" / "model")


def test_a_model_that_cannot_be_saved_is_refused_before_it_is_trained(tmp_path: Path) -> None:
    trainer = build_trainer(spec_of(tmp_path, "reward"))
    require_savable(trainer)
    trainer.model = torch.nn.Linear(2, 2)
    with pytest.raises(ConfigError, match="save_pretrained"):
        require_savable(trainer)
    trainer.is_fsdp_enabled = True
    with pytest.raises(ConfigError, match="sharded among ranks"):
        require_savable(trainer)


def test_a_run_leaves_its_model_outside_of_what_it_counts(tmp_path: Path) -> None:
    left = tmp_path / "out" / "rm"
    few = {"look_steps": 0, "max_steps": 2, "metrics_warmup_steps": 0}
    done = run_config(tmp_path, settings("reward", **few), "--set", f"save_model={left}")
    assert done.code == 0, done.err
    assert (left / "model.safetensors").exists()
    # the weights alone are more than a megabyte
    written = done.record().io["bytes_written"]
    assert written is not None
    assert written < 500_000

    (left / MARK).unlink()
    refused = run_config(tmp_path, settings("reward", **few), "--set", f"save_model={left}")
    assert refused.code == 2
    assert "holds files that no canary saved" in refused.err
