"""The same job as trl does it by itself: the config's work, and trl's own way of doing it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from canary.errors import ConfigError
from canary.training.trainers import build_trainer
from canary.training.trainers.trl_defaults import VARIABLE, without_speed
from tests.integration.trainers.test_workload import make_spec

pytestmark = [pytest.mark.train, pytest.mark.usefixtures("one_thread")]

SLOW: dict[str, Any] = {
    "attn_implementation": "eager",
    "num_workers": 1,
    "speed": {"optimizer": "loop", "prefetch": 2},
    "trainer_args": {"optim": "adamw_torch", "gradient_checkpointing": False, "max_grad_norm": 0.5},
}


@pytest.mark.parametrize("training_type", ["sft", "grpo"])
def test_what_concerns_speed_is_trls_and_the_rest_the_configs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, training_type: str
) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    spec = make_spec(tmp_path, training_type, gradient_accumulation_steps=2, **SLOW)
    spec.scratch_dir.mkdir(parents=True)
    trainer: Any = build_trainer(spec)
    own = type(trainer.args)(output_dir=str(tmp_path / "own"), use_cpu=True, max_steps=1)
    for name in ("bf16", "gradient_checkpointing", "optim", "dataloader_num_workers"):
        assert getattr(trainer.args, name) == getattr(own, name), name
    assert trainer.args.bf16 is True
    assert trainer.args.max_grad_norm == 0.5
    assert trainer.args.learning_rate == spec.config.learning_rate
    assert trainer.args.per_device_train_batch_size == 2
    assert trainer.args.gradient_accumulation_steps == 2
    assert trainer.model.config._attn_implementation == "sdpa"
    assert any("speed settings are the defaults of trl" in note for note in spec.notes)


def test_a_trainer_of_the_users_own_has_no_defaults_of_trl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    with pytest.raises(ConfigError, match="what a trainer_factory builds"):
        build_trainer(make_spec(tmp_path, "custom", trainer_factory="own:build"))


def test_only_arguments_of_speed_are_without_speed() -> None:
    given = {"optim": "adamw_torch", "dataloader_pin_memory": True, "dataloader_drop_last": True}
    given |= {"bf16": False, "learning_rate": 0.1, "gradient_checkpointing_kwargs": {}}
    assert without_speed(given) == {"dataloader_drop_last": True, "learning_rate": 0.1}
    adafactor = {"optim": "adafactor", "optim_args": "scale_parameter=False"}
    assert without_speed({**adafactor, "bf16": False}) == adafactor
    assert without_speed({"use_vllm": True, "vllm_mode": "server"}) == {"use_vllm": False}


def test_ppo_has_no_defaults_of_trl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    with pytest.raises(ConfigError, match="PPO is the canary's own loop"):
        build_trainer(make_spec(tmp_path, "ppo", max_new_tokens=8))
