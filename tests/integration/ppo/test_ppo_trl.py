"""One update of trl's PPO and one of the canary's on equal data, where the installed trl has PPO.

Each thing that the canary does otherwise on purpose is shown here. trl 1.12.0 is the last version
with PPO: `nox -s trl_ppo` runs this file with it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from canary.errors import ConfigError
from canary.training.trainers import WorkloadSpec, build_trainer, trl_ppo
from canary.training.trainers.ppo.model import positions
from canary.training.trainers.ppo.trainer import PPOTrainer
from tests.integration.ppo.watched_ppo import Listener
from tests.integration.trainers.test_workload import make_spec

pytestmark = [pytest.mark.train, pytest.mark.usefixtures("one_thread")]

ROWS, LONGEST = 8, 6
AGREE = 1e-4
MOVED = 0.02
"""How far the policy's weights are from the reference's, so that there is a KL."""


def _no_ppo() -> str:
    try:
        trl_ppo._offered()
    except ConfigError as error:
        return error.message
    return ""


@pytest.fixture
def trl_with_ppo() -> None:
    """Asked within a test: to import trl takes seconds."""
    missing = "" if os.environ.get("CANARY_TRL_HAS_PPO") else _no_ppo()
    if missing:
        pytest.skip(missing)


@dataclass(frozen=True)
class Both:
    """What the two trainers told of the same update, and themselves."""

    trl: Any
    told: dict[str, float]
    ours: PPOTrainer
    heard: Listener


class Completions:
    """Gives every prompt its own completion, drawn from its ids; `ragged`: with an early end."""

    def __init__(self, eos: int, pad: int, vocabulary: int, ragged: bool) -> None:
        self.pad = pad
        self._eos = eos
        self._ids = [i for i in range(vocabulary) if i not in (eos, pad)]
        self._ragged = ragged

    def of(self, prompt: tuple[int, ...]) -> list[int]:
        drawn = torch.Generator().manual_seed(sum(n * i for n, i in enumerate(prompt, start=1)))
        places = torch.randint(len(self._ids), (LONGEST,), generator=drawn).tolist()
        ids = [self._ids[place] for place in places]
        length = int(torch.randint(1, LONGEST + 4, (), generator=drawn))
        if not self._ragged or length > LONGEST:
            return ids
        return [*ids[: length - 1], self._eos]

    def after(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The prompts, and after each its completion, padded on the right."""
        rows = []
        for row, kept in zip(ids.tolist(), mask.bool().tolist(), strict=True):
            prompt = tuple(i for i, keep in zip(row, kept, strict=True) if keep)
            found = self.of(prompt)
            rows.append(found + [self.pad] * (LONGEST - len(found)))
        return torch.cat([ids, torch.tensor(rows)], dim=1)


def moved(model: torch.nn.Module) -> None:
    """The policy is not the reference any more; the same for both trainers."""
    drawn = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for value in model.parameters():
            value.add_(MOVED * torch.randn(value.shape, generator=drawn) * value.std())


def spec_of(folder: Path, ppo: dict[str, Any]) -> WorkloadSpec:
    return make_spec(
        folder,
        "ppo",
        1,
        batch_size=ROWS,
        dataset_size=ROWS,
        max_new_tokens=LONGEST,
        temperature=0.7,
        learning_rate=1e-3,
        # trl does not clip gradients
        trainer_args={"max_grad_norm": 0.0},
        ppo={"ppo_epochs": 1, "init_kl_coef": 0.3, "gamma": 0.95, **ppo},
    )


def trained_by_trl(folder: Path, ppo: dict[str, Any], ragged: bool) -> tuple[Any, dict[str, float]]:
    spec = spec_of(folder, ppo)
    spec.scratch_dir.mkdir(parents=True)
    trainer = trl_ppo.build(spec)
    policy, tokenizer = trainer.policy_model, trainer.processing_class
    moved(policy)
    critic = trainer.value_model
    critic.model.load_state_dict(policy.model.state_dict())
    given = Completions(
        tokenizer.eos_token_id, tokenizer.pad_token_id, policy.config.vocab_size, ragged
    )

    def generate(input_ids: Any, attention_mask: Any, **_: Any) -> Any:
        sequences = given.after(input_ids, attention_mask)
        mask = torch.cat([attention_mask, sequences[:, -LONGEST:].ne(given.pad)], dim=1)
        own = {"attention_mask": mask, "position_ids": positions(mask)}
        scores = policy(input_ids=sequences, **own).logits[:, -LONGEST - 1 : -1] / 0.7
        return SimpleNamespace(sequences=sequences, scores=scores.unbind(dim=1))

    policy.generate = generate
    trainer.train()
    return trainer, next(entry for entry in trainer.state.log_history if "objective/kl" in entry)


def trained_by_canary(
    folder: Path, ppo: dict[str, Any], ragged: bool, head: torch.Tensor
) -> tuple[PPOTrainer, Listener]:
    trainer = build_trainer(spec_of(folder, ppo))
    assert isinstance(trainer, PPOTrainer)
    tokenizer = trainer.processing_class
    moved(trainer.model.policy)
    trainer.model.value_head.weight.data.copy_(head)
    size = trainer.model.policy.config.vocab_size
    given = Completions(tokenizer.eos_token_id, tokenizer.pad_token_id, size, ragged)
    trainer.model.generate = lambda **asked: given.after(  # type: ignore[method-assign]
        asked["input_ids"], asked["attention_mask"]
    )
    heard = trainer.watch = Listener()
    trainer.train()
    return trainer, heard


def both(folder: Path, ragged: bool = False, **ppo: Any) -> Both:
    """The same rollout and the same updates by both; the critic starts from equal weights."""
    head = torch.Generator().manual_seed(9)
    weight = 0.05 * torch.randn(1, 96, generator=head)
    own = trl_ppo._critic

    def critic(spec: WorkloadSpec, policy: Any) -> Any:
        found = own(spec, policy)
        found.score.weight.data.copy_(weight)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trl_ppo, "_critic", critic)
        trl, told = trained_by_trl(folder / "trl", ppo, ragged)
    ours, heard = trained_by_canary(folder / "ours", ppo, ragged, weight)
    return Both(trl, told, ours, heard)


SAME = {
    "policy_loss": "loss/policy_avg",
    "value_loss": "loss/value_avg",
    "clip_ratio": "policy/clipfrac_avg",
    "value_clip_ratio": "val/clipfrac_avg",
    "kl_sequence": "objective/kl",
    "reward": "objective/scores",
}


@pytest.mark.usefixtures("trl_with_ppo")
@pytest.mark.parametrize(
    "ppo",
    [
        {},
        {"kl_estimator": "k3", "lam": 0.5},
        {"whiten_rewards": True, "missing_eos_penalty": 0.5},
        {"ppo_epochs": 3, "cliprange": 0.05, "vf_coef": 0.0},
    ],
    ids=str,
)
def test_updates_on_equal_data_agree(tmp_path: Path, ppo: dict[str, Any]) -> None:
    """Completions that fill their length, where trl has no room for a position more. Over several
    updates only without a value loss, which trl's critic alone learns from."""
    found = both(tmp_path, **ppo)
    (step,) = found.heard.steps
    assert abs(step["kl_sequence"]) > 100 * AGREE
    assert abs(step["policy_loss"]) + step["value_loss"] > 100 * AGREE
    apart = ppo.get("vf_coef") == 0.0
    for name, theirs in SAME.items():
        if apart and name.startswith("value"):
            continue  # on a trunk that the policy moves
        assert step[name] == pytest.approx(found.told[theirs], abs=AGREE), name
    if apart:
        assert step["clip_ratio"] > 0
        own = dict(found.ours.model.policy.named_parameters())
        for name, value in found.trl.policy_model.named_parameters():
            assert torch.allclose(own[name], value, atol=AGREE), name


def test_what_trl_has_no_setting_for_is_named(tmp_path: Path) -> None:
    """Whichever trl is installed: the difference in settings is known to the canary."""
    spec = spec_of(tmp_path, {"ent_coef": 0.1, "target_kl": 0.5, "adap_kl_ctrl": True})
    trl_ppo._settings(spec)
    told = " ".join(spec.notes)
    assert all(f"ppo.{name}" in told for name in ("ent_coef", "target_kl", "adap_kl_ctrl"))
