"""One update of trl's PPO and one of the canary's on equal data, where the installed trl has PPO.

What the canary does otherwise on purpose stands in docs/trainers.md, and is each shown here. trl
1.12.0 is the last version with PPO: `nox -s trl_ppo` runs this file with it.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from canary.errors import ConfigError
from canary.training.trainers import WorkloadSpec, build_trainer, trl_ppo
from canary.training.trainers.ppo import objective
from canary.training.trainers.ppo.model import Request, positions
from canary.training.trainers.ppo.trainer import PPOTrainer
from tests.integration.ppo.watched_ppo import Listener
from tests.integration.trainers.test_workload import make_spec

pytestmark = pytest.mark.train

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


missing = "" if os.environ.get("CANARY_TRL_HAS_PPO") else _no_ppo()
needs_trl_ppo = pytest.mark.skipif(bool(missing), reason=missing)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


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


@needs_trl_ppo
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


@needs_trl_ppo
def test_where_completions_end_early_trl_has_a_position_more(tmp_path: Path) -> None:
    """trl gives the score one position after the last token and keeps a value there, where there is
    room; in the canary the sequence is over. With masks one longer, the canary's own formulas give
    trl's losses: nothing else differs."""
    found = both(tmp_path, ragged=True, missing_eos_penalty=0.5)
    (step,), (rollout,) = found.heard.steps, found.heard.rollouts
    assert step["reward"] == pytest.approx(found.told["objective/scores"], abs=AGREE)
    assert step["kl_sequence"] == pytest.approx(found.told["objective/kl"], abs=AGREE)
    assert abs(step["value_loss"] - found.told["loss/value_avg"]) > 10 * AGREE

    mask = rollout["completion_mask"]
    lengths = mask.sum(dim=1)
    assert lengths.min() < LONGEST
    assert lengths.max() == LONGEST
    longer = torch.arange(LONGEST) <= lengths[:, None]
    values = objective.kept(_values_of_all(found, rollout), longer)
    kl = objective.kept(rollout["logprobs"] - rollout["reference_logprobs"], mask)
    rewards = objective.penalised_rewards(rollout["scores"], kl, longer, 0.3)
    advantages = objective.advantages_at_once(rewards, values, longer, 0.95, 0.95)
    returns = advantages + values
    white = objective.whiten(advantages, mask, objective.moments(advantages, mask))
    logprobs = rollout["logprobs"]
    policy = objective.policy_loss(logprobs, logprobs, white, mask, 0.2).total / mask.sum()
    value = objective.value_loss(values, values, returns, longer, 0.2).total / longer.sum()
    assert policy.item() == pytest.approx(found.told["loss/policy_avg"], abs=AGREE)
    assert value.item() == pytest.approx(found.told["loss/value_avg"], abs=AGREE)


def _values_of_all(found: Both, rollout: dict[str, torch.Tensor]) -> torch.Tensor:
    """Values of the rollout's policy at every position, that after the last token too."""
    trainer = build_trainer(spec_of(Path(found.ours.args.output_dir).parent / "again", {}))
    assert isinstance(trainer, PPOTrainer)
    moved(trainer.model.policy)
    head = torch.Generator().manual_seed(9)
    trainer.model.value_head.weight.data.copy_(0.05 * torch.randn(1, 96, generator=head))
    ids = torch.cat([rollout["prompt_ids"], rollout["completion_ids"]], dim=1)
    mask = torch.cat([rollout["prompt_mask"], rollout["completion_mask"].long()], dim=1)
    with torch.no_grad():
        values = trainer.model(ids, mask, LONGEST, Request(0.7)).values
    assert torch.allclose(
        values[rollout["completion_mask"]], rollout["values"][rollout["completion_mask"]], atol=1e-5
    )
    found_values: torch.Tensor = values
    return found_values


@needs_trl_ppo
def test_means_are_over_the_tokens_of_an_update_and_not_of_its_micro_batches(
    tmp_path: Path,
) -> None:
    """The other difference in a loss: trl takes the mean of each micro-batch for itself, so that
    tokens of short completions weigh more. On completions of one length there is none."""
    mask = torch.arange(LONGEST) < torch.tensor([[6], [5], [1], [1]])
    advantages = torch.linspace(-1, 2, 24).reshape(4, LONGEST)
    logprobs = torch.zeros(4, LONGEST)
    config, _ = trl_ppo._offered()
    theirs = importlib.import_module(config.__module__.replace("ppo_config", "ppo_trainer"))

    def of_micro_batches(kept: torch.Tensor) -> float:
        halves = zip((-advantages).split(2), kept.split(2), strict=True)
        return sum(theirs.masked_mean(*half).item() for half in halves) / 2

    ours = objective.policy_loss(logprobs, logprobs, advantages, mask, 0.2).total / mask.sum()
    assert ours.item() == pytest.approx(-objective.moments(advantages, mask).mean.item())
    assert abs(ours.item() - of_micro_batches(mask)) > 0.1
    whole = torch.ones_like(mask)
    same = objective.policy_loss(logprobs, logprobs, advantages, whole, 0.2).total / whole.sum()
    assert same.item() == pytest.approx(of_micro_batches(whole))


@needs_trl_ppo
def test_both_are_given_the_same_prompts_in_each_step(tmp_path: Path) -> None:
    """Over the end of the data, too: a ladder times the two against each other, and prompts of
    other lengths are other work."""
    fields: dict[str, Any] = {"batch_size": 8, "dataset_size": 20, "allow_repeat": True}
    spec = make_spec(tmp_path, "ppo", 4, max_new_tokens=LONGEST, **fields)
    spec.scratch_dir.mkdir(parents=True)
    trl = trl_ppo.build(spec)
    ours = build_trainer(spec)
    assert isinstance(ours, PPOTrainer)
    given: list[list[list[int]]] = []
    for loader, names in (
        (trl.get_train_dataloader(), ("input_ids", "attention_mask")),
        (ours.get_train_dataloader(), ("ids", "mask")),
    ):
        rows: list[list[int]] = []
        for _ in range(2):
            for batch in loader:
                ids, kept = (batch[name] for name in names)
                rows += [row[mask.bool()].tolist() for row, mask in zip(ids, kept, strict=True)]
        given.append(rows)
    assert given[0] == given[1]
    assert len(given[0]) == 32
    assert given[0][:16] != given[0][16:], "the data in a new order"


def test_what_trl_has_no_setting_for_is_named(tmp_path: Path) -> None:
    """Whichever trl is installed: the difference in settings is known to the canary."""
    spec = spec_of(tmp_path, {"ent_coef": 0.1, "target_kl": 0.5, "adap_kl_ctrl": True})
    trl_ppo._settings(spec)
    told = " ".join(spec.notes)
    assert all(f"ppo.{name}" in told for name in ("ent_coef", "target_kl", "adap_kl_ctrl"))
