"""PPO's loop: exact where it has to be, and the same however the work is cut."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import torch

from canary.training.trainers.ppo.objective import KLCoefficient
from canary.training.trainers.replay import RECORD, REPLAY, completions_of
from tests.integration.ppo.watched_ppo import Listener, farthest, ppo_trainer, trained, weights

pytestmark = [pytest.mark.train, pytest.mark.usefixtures("one_thread")]

CUTS: dict[str, dict[str, Any]] = {
    "whole": {},
    "mini-batches": {"batch_size": 2, "ppo": {"num_mini_batches": 3}},
    "accumulated": {"batch_size": 2, "gradient_accumulation_steps": 3},
    "bucketed": {
        "batch_size": 2,
        "gradient_accumulation_steps": 3,
        "speed": {"lengths": "bucketed"},
        "ppo": {"num_mini_batches": 2},
    },
    "bf16": {"batch_size": 2, "gradient_accumulation_steps": 2, "dtype": "bfloat16"},
}


@pytest.mark.parametrize(
    ("cut", "use_peft"), [*((cut, False) for cut in CUTS), ("accumulated", True)]
)
def test_the_first_ratio_is_exactly_1_and_the_first_kl_exactly_0(
    tmp_path: Path, cut: str, use_peft: bool
) -> None:
    changes = {"use_peft": use_peft, "temperature": 0.7, "max_new_tokens": 12, **CUTS[cut]}
    _, heard = trained(tmp_path, **changes)
    (found,), (rollout,) = heard.steps, heard.rollouts
    assert found["ratio_deviation"] == 0
    assert found["kl"] == found["kl_sequence"] == 0
    assert torch.equal(rollout["logprobs"], rollout["reference_logprobs"])
    assert len(set(rollout["completion_mask"].sum(dim=1).tolist())) > 1, "lengths differ"
    assert not rollout["values"].any(), "the value head starts at 0"
    if cut == "whole":
        assert found["approx_kl"] == found["clip_ratio"] == 0


@pytest.fixture
def completions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Completions of two steps of a rollout of 6."""
    file = tmp_path / "completions.json"
    monkeypatch.setenv(RECORD, str(file))
    trainer = ppo_trainer(tmp_path / "recorded", max_steps=2, batch_size=6, max_new_tokens=12)
    with completions_of(trainer, 2, []):
        trainer.train()
    monkeypatch.delenv(RECORD)
    monkeypatch.setenv(REPLAY, str(file))
    return file


def replayed(folder: Path, **changes: Any) -> tuple[dict[str, torch.Tensor], Listener]:
    """Weights after two steps of three epochs on the recorded completions."""
    fields = {"max_steps": 2, "batch_size": 6, "max_new_tokens": 12, **changes}
    fields["ppo"] = {"ppo_epochs": 3, **changes.get("ppo", {})}
    trainer, heard = trained(folder, lambda one: _give_again(one), **fields)
    return weights(trainer), heard


def _give_again(trainer: Any) -> None:
    """Nothing follows the training where completions are given again."""
    contextlib.ExitStack().enter_context(completions_of(trainer, 2, []))


def test_micro_batches_do_not_change_the_update(tmp_path: Path, completions: Path) -> None:
    """The mean is over the tokens of the mini-batch, so that short completions weigh no more."""
    changes: dict[str, Any] = {"ppo": {"ent_coef": 0.05}}
    whole, heard = replayed(tmp_path / "whole", **changes)
    for size in (2, 1):
        cut = {"batch_size": size, "gradient_accumulation_steps": 6 // size}
        other, told = replayed(tmp_path / str(size), **changes, **cut)
        assert told.losses == pytest.approx(heard.losses, rel=1e-4, abs=1e-6)
        assert farthest(whole, other) < 2e-4  # a tenth of one update, where Adam magnifies rounding
        first = {name: told.steps[0][name] for name in ("policy_loss", "value_loss", "approx_kl")}
        wanted = {name: heard.steps[0][name] for name in first}
        assert first == pytest.approx(wanted, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize(("ent_coef", "ppo_epochs"), [(1.0, 4), (0.0, 2)])
def test_the_loss_is_the_sum_of_its_recorded_parts(
    tmp_path: Path, ent_coef: float, ppo_epochs: int
) -> None:
    ppo = {"ent_coef": ent_coef, "ppo_epochs": ppo_epochs, "vf_coef": 0.5, "num_mini_batches": 2}
    _, heard = trained(tmp_path, batch_size=2, max_steps=2, learning_rate=1e-2, ppo=ppo)
    for step in heard.steps:
        bonus = ent_coef * step.get("entropy_update", 0.0)
        whole = step["policy_loss"] + 0.5 * step["value_loss"] - bonus
        assert step["loss"] == pytest.approx(whole, rel=1e-5, abs=1e-6)
        assert ("entropy_update" in step) == bool(ent_coef)
        if ent_coef:
            moved = step["entropy_update"] - step["entropy"]
            assert abs(moved) > 1e-3, "the updates' own, not the rollout's"


SWITCHES: tuple[dict[str, Any], ...] = (
    {"advantages": "loop"},
    {"logprobs": "whole"},
    {"shared_forward": False},
    {"rollout_batch": "micro"},
    {"lengths": "fixed"},
    {"lengths": "bucketed"},
    {"optimizer": "loop"},
    {"optimizer": "fused"},
    {"advantages": "loop", "logprobs": "whole", "shared_forward": False, "lengths": "fixed"},
)


def test_switches_of_speed_change_no_loss(tmp_path: Path, completions: Path) -> None:
    by_two = {"batch_size": 2, "gradient_accumulation_steps": 3}
    plain, heard = replayed(tmp_path / "plain", **by_two)
    (first, second) = heard.rollouts
    for place, speed in enumerate(SWITCHES):
        other, told = replayed(tmp_path / str(place), speed=speed, **by_two)
        assert told.losses == pytest.approx(heard.losses, rel=2e-4, abs=2e-6), speed
        assert farthest(plain, other) < 2e-4, speed
        for one, found in zip((first, second), told.rollouts, strict=True):
            width = one["completion_ids"].shape[1]
            for name in ("completion_ids", "logprobs", "values", "advantages", "returns"):
                cut = found[name][:, :width]
                assert torch.allclose(cut, one[name], rtol=1e-3, atol=2e-5), (speed, name)
            if speed.get("lengths") == "fixed":
                assert found["completion_ids"].shape[1] == 12


@pytest.mark.parametrize("speed", [{"kv_cache": False}, {"decode": "static"}], ids=str)
def test_caches_change_no_completion(tmp_path: Path, speed: dict[str, Any]) -> None:
    runs = [trained(tmp_path / str(n), speed=each)[1] for n, each in enumerate(({}, speed))]
    one, other = (heard.rollouts[0] for heard in runs)
    assert torch.equal(one["completion_ids"], other["completion_ids"])
    assert runs[0].losses == pytest.approx(runs[1].losses, rel=1e-5, abs=1e-7)


def test_a_completion_without_an_end_costs_the_penalty(tmp_path: Path) -> None:
    _, plain = trained(tmp_path / "plain", max_new_tokens=12)
    _, fined = trained(tmp_path / "fined", max_new_tokens=12, ppo={"missing_eos_penalty": 0.75})
    one, other = plain.rollouts[0], fined.rollouts[0]
    assert torch.equal(one["completion_ids"], other["completion_ids"])
    ended = (one["completion_ids"] == eos_of(tmp_path)).any(dim=1)
    assert set(ended.tolist()) == {True, False}
    taken = one["scores"] - other["scores"]
    assert taken.tolist() == pytest.approx([0.0 if end else 0.75 for end in ended.tolist()])
    assert fined.steps[0]["eos_rate"] == pytest.approx(ended.float().mean().item())
    assert fined.steps[0]["score"] == plain.steps[0]["score"] == plain.steps[0]["reward"]
    assert fined.steps[0]["reward"] == pytest.approx(other["scores"].mean().item())


def eos_of(folder: Path) -> int:
    found: int = ppo_trainer(folder / "eos").processing_class.eos_token_id
    return found


# --- the KL that adapts, the KL that stops


def test_the_weight_of_the_kl_is_adapted_from_step_to_step(tmp_path: Path) -> None:
    ppo = {"adap_kl_ctrl": True, "target": 0.001, "horizon": 100, "init_kl_coef": 0.2}
    _, heard = trained(tmp_path, max_steps=4, ppo=ppo)
    wanted = KLCoefficient(0.2, 0.001, 100)
    for step in heard.steps:
        assert step["kl_coef"] == pytest.approx(wanted.value)
        wanted.update(step["kl_sequence"], 4)
    assert len({step["kl_coef"] for step in heard.steps}) > 1


def test_a_kl_beyond_its_target_ends_the_updates_of_a_step(tmp_path: Path) -> None:
    ppo = {"ppo_epochs": 5, "target_kl": 1e-7, "vf_coef": 0.0}
    trainer, heard = trained(tmp_path, ppo=ppo)
    assert heard.steps[0]["updates"] == 1
    assert len(heard.losses) == 2, "the second was judged, and not made"
    once, told = trained(tmp_path / "once", ppo={"ppo_epochs": 1, "vf_coef": 0.0})
    assert told.steps[0]["updates"] == 1
    assert farthest(weights(trainer), weights(once)) == 0
    free, told = trained(tmp_path / "free", ppo={"ppo_epochs": 5, "vf_coef": 0.0})
    assert told.steps[0]["updates"] == 5
    assert farthest(weights(trainer), weights(free)) > 0
