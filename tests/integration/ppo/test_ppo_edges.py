"""PPO at its edges: smallest rollouts, data that ends, what a user may ask of any trainer."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from canary.errors import ConfigError, InputError
from canary.training.trainers import build_trainer
from canary.training.trainers.ppo import building
from tests.integration.ppo.watched_ppo import trained, weights
from tests.integration.trainers.test_workload import make_spec, refusal, write_jsonl

pytestmark = [pytest.mark.train, pytest.mark.usefixtures("one_thread")]


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_size": 1, "max_new_tokens": 1},
        {"batch_size": 1, "ppo": {"num_mini_batches": 3, "whiten_rewards": True}},
    ],
    ids=str,
)
def test_the_smallest_rollouts_train(tmp_path: Path, changes: dict[str, Any]) -> None:
    trainer, heard = trained(tmp_path, max_steps=2, **changes)
    for step in heard.steps:
        assert all(torch.tensor(value).isfinite() for value in step.values()), step
    assert all(value.isfinite().all() for value in weights(trainer).values())


def test_completions_that_end_at_once_train(tmp_path: Path) -> None:
    def end_at_once(trainer: Any) -> None:
        eos = trainer.processing_class.eos_token_id

        def generate(input_ids: torch.Tensor, **_: Any) -> torch.Tensor:
            return torch.nn.functional.pad(input_ids, (0, 1), value=eos)

        trainer.model.generate = generate

    trainer, heard = trained(tmp_path, end_at_once, max_steps=2, ppo={"missing_eos_penalty": 1.0})
    assert heard.rollouts[0]["completion_ids"].shape == (4, 1)
    assert heard.steps[0]["eos_rate"] == heard.steps[0]["completion_length"] == 1
    assert all(value.isfinite().all() for value in weights(trainer).values())


@pytest.mark.parametrize(("horizon", "fits"), [(2, False), (3, True)])
def test_a_horizon_that_would_turn_the_kls_sign_is_refused(
    tmp_path: Path, horizon: int, fits: bool
) -> None:
    """An adaptation takes at most 1/5 of the completions over the horizon: here of 12."""
    ppo = {"adap_kl_ctrl": True, "target": 6.0, "horizon": horizon}
    spec = make_spec(tmp_path, "ppo", 1, batch_size=12, ppo=ppo)
    if not fits:
        assert f"ppo.horizon {horizon} is too short" in refusal(spec, ConfigError)
        return
    trainer = build_trainer(spec)
    trainer.kl_coefficient.update(0.0, 12)
    assert trainer.kl_coefficient.value > 0


def test_what_its_loop_does_not_read_is_told(tmp_path: Path) -> None:
    given = {"neftune_noise_alpha": 5.0, "label_smoothing_factor": 0.0, "weight_decay": 0.1}
    spec = make_spec(tmp_path, "ppo", 1, trainer_args=given)
    build_trainer(spec)
    told = [note for note in spec.notes if "is not used" in note]
    assert told == ["trainer_args.neftune_noise_alpha is not used: PPO has another training loop"]


def test_an_empty_prompt_is_named(tmp_path: Path) -> None:
    rows = [{"prompt": text, "answer": "a"} for text in ("a", "b", "", "c")]
    data = str(write_jsonl(tmp_path / "rows.jsonl", rows))
    spec = make_spec(tmp_path, "ppo", 1, dataset_name=data, dataset_size=4)
    assert "'prompt' of usable row 3 is empty" in refusal(spec, InputError)


def test_data_seen_again_comes_in_another_order(tmp_path: Path) -> None:
    _, heard = trained(tmp_path, max_steps=4, batch_size=4, dataset_size=8, allow_repeat=True)
    prompts = [sorted(r["prompt_ids"].sum(dim=1).tolist()) for r in heard.rollouts]
    assert sorted(prompts[0] + prompts[1]) == sorted(prompts[2] + prompts[3])
    assert prompts[:2] != prompts[2:]


def test_a_checkpoint_holds_the_policy_and_its_value_head(tmp_path: Path) -> None:
    saving = {"save_strategy": "steps", "save_steps": 2}
    trainer, _ = trained(tmp_path, max_steps=3, trainer_args=saving)
    folder = Path(trainer.args.output_dir) / "checkpoint-2"
    head = torch.load(folder / "value_head.pt")
    assert head["weight"].any()
    assert not torch.equal(head["weight"], trainer.model.value_head.weight)
    policy = AutoModelForCausalLM.from_pretrained(folder)
    assert policy.num_parameters() == trainer.model.policy.num_parameters()


def test_a_policy_that_ranks_share_out_is_refused() -> None:
    for name in ("is_fsdp_enabled", "is_deepspeed_enabled"):
        flags = {"is_fsdp_enabled": False, "is_deepspeed_enabled": False, name: True}
        with pytest.raises(ConfigError, match="the whole policy on every rank"):
            building._require_whole_models(SimpleNamespace(**flags))
