"""PPO on models of many kinds: the log-probabilities are those of what was sampled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import GenerationConfig, PreTrainedModel

from canary.training.models.model import load_tokenizer
from canary.training.trainers.ppo.model import ActorCritic, without_dropout
from canary.training.trainers.ppo.objective import completion_mask
from canary.training.trainers.ppo.trainer import PPOTrainer
from tests.integration.ppo.watched_ppo import Listener, Tensors, ppo_trainer
from tests.integration.trainers.test_workload import make_spec

pytestmark = [pytest.mark.train, pytest.mark.usefixtures("one_thread")]


def sized(**more: Any) -> dict[str, Any]:
    """Names that most configs have."""
    return {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        **more,
    }


FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "absolute positions": ("GPT2", {"n_embd": 32, "n_layer": 2, "n_head": 2}),
    "rotary, attention dropout": ("GPTNeoX", sized(attention_dropout=0.3, hidden_dropout=0.3)),
    "logits capped": (
        "Gemma2",
        sized(num_key_value_heads=1, head_dim=16, final_logit_softcapping=2.0),
    ),
    "logits scaled": ("Cohere", sized(num_key_value_heads=2, logit_scale=4.0)),
    "no position_ids, alibi": ("Bloom", {"hidden_size": 32, "n_layer": 2, "n_head": 2}),
    "positions from the mask": (
        "OPT",
        sized(ffn_dim=64, word_embed_proj_dim=32, dropout=0.3, max_position_embeddings=256),
    ),
    "recurrent": ("Mamba", sized(state_size=4)),
    "experts": ("Mixtral", sized(num_key_value_heads=2, num_local_experts=2)),
}


def family(folder: Path, kind: str) -> tuple[Path, Any]:
    """A model of that kind with random weights, and the embedded tokenizer."""
    name, shape = FAMILIES[kind]
    tokenizer = load_tokenizer(make_spec(folder / "tokenizer", "sft"))
    ids = {f"{each}_token_id": getattr(tokenizer, f"{each}_token_id") for each in ("pad", "eos")}
    config = getattr(transformers, f"{name}Config")(vocab_size=len(tokenizer), **ids, **shape)
    torch.manual_seed(0)
    model: PreTrainedModel = transformers.AutoModelForCausalLM.from_config(config)
    for value in model.parameters():  # far enough from 0 for distributions that differ
        value.data.mul_(4)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder, tokenizer


def alone(trainer: PPOTrainer, rollout: Tensors, row: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities of a row by the model's own logits, without padding; and their entropy."""
    prompt = rollout["prompt_ids"][row][rollout["prompt_mask"][row].bool()]
    completion = rollout["completion_ids"][row][rollout["completion_mask"][row]]
    with torch.no_grad():
        logits = trainer.model.policy(input_ids=torch.cat([prompt, completion])[None]).logits[0]
    every = torch.log_softmax(logits[len(prompt) - 1 : -1] / trainer.args.temperature, dim=-1)
    entropy = torch.distributions.Categorical(logits=every).entropy()
    return every.gather(1, completion[:, None])[:, 0], entropy


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_row_in_a_padded_batch_is_as_it_is_alone(tmp_path: Path, kind: str) -> None:
    place, _ = family(tmp_path / "model", kind)
    changes: dict[str, Any] = {"model_name": str(place), "temperature": 0.7, "batch_size": 6}
    trainer = ppo_trainer(tmp_path, **changes, learning_rate=1e-30, ppo={"ent_coef": 0.01})
    heard = trainer.watch = Listener()
    trainer.train()
    rollout = heard.rollouts[0]
    prompts = rollout["prompt_mask"].sum(dim=1)
    assert len(set(prompts.tolist())) > 1, "some are padded"
    for row, length in enumerate(rollout["completion_mask"].sum(dim=1).tolist()):
        logprobs, entropy = alone(trainer, rollout, row)
        assert torch.allclose(rollout["logprobs"][row, :length], logprobs, atol=2e-4), kind
        assert torch.allclose(rollout["entropy"][row, :length], entropy, atol=2e-4), kind
    assert heard.steps[0]["ratio_deviation"] == 0
    # Within a model matmul may take another way for weights that train than for frozen ones.
    assert heard.steps[0]["kl"] == pytest.approx(0, abs=2e-6)


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("Starcoder2", sized(num_key_value_heads=2, residual_dropout=0.4, embedding_dropout=0.4)),
        ("GPT2", {"n_embd": 32, "n_layer": 2, "n_head": 2}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_dropout_is_off_by_whatever_name_it_goes(family: str, settings: dict[str, Any]) -> None:
    """As modules, and as rates of modules and of their config."""
    config = getattr(transformers, f"{family}Config")(vocab_size=64, **settings)
    model: PreTrainedModel = transformers.AutoModelForCausalLM.from_config(config)
    ids = torch.arange(2, 30).unsqueeze(0)
    model.train()
    assert not torch.equal(model(input_ids=ids).logits, model(input_ids=ids).logits)
    assert without_dropout(model) > 0
    assert torch.equal(model(input_ids=ids).logits, model(input_ids=ids).logits)


# --- what is sampled


def sampled_scores(trainer: PPOTrainer) -> list[torch.Tensor]:
    """Gets the distributions that generate sampled from, (rows, tokens, vocabulary), as log."""
    found: list[torch.Tensor] = []
    own: Callable[..., Any] = trainer.model.policy.generate

    def generate(**kwargs: Any) -> torch.Tensor:
        output = own(**kwargs, output_scores=True, return_dict_in_generate=True)
        found.append(torch.stack(output.scores, dim=1).log_softmax(-1))
        sequences: torch.Tensor = output.sequences
        return sequences

    trainer.model.generate = generate  # type: ignore[method-assign]
    return found


@pytest.mark.parametrize(("temperature", "use_peft"), [(0.5, False), (1.7, True)])
def test_the_distribution_sampled_from_is_the_one_learnt_by(
    tmp_path: Path, temperature: float, use_peft: bool
) -> None:
    trainer = ppo_trainer(tmp_path, temperature=temperature, use_peft=use_peft, batch_size=6)
    scores = sampled_scores(trainer)
    heard = trainer.watch = Listener()
    trainer.train()
    rollout, mask = heard.rollouts[0], heard.rollouts[0]["completion_mask"]
    told = scores[0].gather(-1, rollout["completion_ids"].unsqueeze(-1)).squeeze(-1)
    assert torch.allclose(told[mask], rollout["logprobs"][mask], atol=1e-4)
    entropy = torch.distributions.Categorical(logits=scores[0]).entropy()
    assert torch.allclose(entropy[mask], rollout["entropy"][mask], atol=1e-4)
    cold = torch.log_softmax(scores[0] * temperature, dim=-1)
    other = cold.gather(-1, rollout["completion_ids"].unsqueeze(-1)).squeeze(-1)
    assert not torch.allclose(other[mask], rollout["logprobs"][mask], atol=1e-2)


def test_a_models_own_settings_of_sampling_shift_nothing(tmp_path: Path) -> None:
    """Qwen's instruct models bring a repetition penalty, top_k and top_p along."""
    place, tokenizer = family(tmp_path / "model", "absolute positions")
    own = GenerationConfig(
        do_sample=True,
        top_k=3,
        top_p=0.5,
        repetition_penalty=1.5,
        no_repeat_ngram_size=2,
        eos_token_id=[tokenizer.eos_token_id, 5],
        pad_token_id=tokenizer.pad_token_id,
    )
    own.save_pretrained(place)
    trainer = ppo_trainer(tmp_path, model_name=str(place), batch_size=6)
    scores = sampled_scores(trainer)
    heard = trainer.watch = Listener()
    trainer.train()
    rollout, mask = heard.rollouts[0], heard.rollouts[0]["completion_mask"]
    assert scores[0].isfinite().all(), "nothing was cut off"
    told = scores[0].gather(-1, rollout["completion_ids"].unsqueeze(-1)).squeeze(-1)
    assert torch.allclose(told[mask], rollout["logprobs"][mask], atol=1e-4)
    assert torch.equal(mask, completion_mask(rollout["completion_ids"], tokenizer.eos_token_id))


# --- what is learnt


def test_the_gradient_is_that_of_the_textbooks_objective(tmp_path: Path) -> None:
    """All of it, through the model: surrogate, value, entropy, over micro-batches; written here
    anew, in one piece, on a policy that has moved since its rollout."""
    ppo = {"num_mini_batches": 2, "vf_coef": 0.3, "ent_coef": 0.02, "cliprange": 0.1}
    changes: dict[str, Any] = {"ppo": ppo, "batch_size": 2, "gradient_accumulation_steps": 2}
    changes |= {"temperature": 0.8, "trainer_args": {"max_grad_norm": 0.0}}
    trainer = ppo_trainer(tmp_path, learning_rate=3e-3, **changes)
    heard = trainer.watch = Listener()
    gradients: list[dict[str, torch.Tensor]] = []
    copies: list[Any] = []

    def before_update(optimizer: Any, *_: Any) -> None:
        model = trainer.model
        gradients.append({n: p.grad.clone() for n, p in model.named_parameters()})  # type: ignore[union-attr]
        copies.append({n: p.detach().clone() for n, p in model.named_parameters()})

    trainer.create_optimizer_and_scheduler(1)
    trainer.optimizer.register_step_pre_hook(before_update)
    trainer.train()
    assert len(gradients) == 2
    rollout = {name: value[4:] for name, value in heard.rollouts[0].items()}  # the second update's
    for name, value in trainer.model.named_parameters():
        value.data.copy_(copies[1][name])
        value.grad = None
    loss, ratios = textbook_loss(
        trainer.model, rollout, temperature=0.8, vf=0.3, ent=0.02, clip=0.1
    )
    assert ((ratios - 1).abs() > 0.1).any(), "some ratios are clipped"
    assert heard.losses[1] == pytest.approx(loss.item(), rel=1e-4)
    loss.backward()  # type: ignore[no-untyped-call]
    for name, value in trainer.model.named_parameters():
        assert value.grad is not None
        assert torch.allclose(gradients[1][name], value.grad, rtol=1e-3, atol=1e-5), name


def textbook_loss(
    model: ActorCritic, rollout: Tensors, *, temperature: float, vf: float, ent: float, clip: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Row by row, without padding: means over all tokens of the rows."""
    policy, value, entropy, ratios = [], [], [], []
    for row in range(len(rollout["scores"])):
        prompt = rollout["prompt_ids"][row][rollout["prompt_mask"][row].bool()]
        mask = rollout["completion_mask"][row]
        completion = rollout["completion_ids"][row][mask]
        output = model.policy(
            input_ids=torch.cat([prompt, completion])[None], output_hidden_states=True
        )
        place = slice(len(prompt) - 1, -1)
        told = torch.distributions.Categorical(logits=output.logits[0, place] / temperature)
        ratio = torch.exp(told.log_prob(completion) - rollout["logprobs"][row][mask])
        advantage = rollout["advantages"][row][mask]
        values = model.value_head(output.hidden_states[-1][0, place])[:, 0]
        old, returns = rollout["values"][row][mask], rollout["returns"][row][mask]
        held = torch.minimum(torch.maximum(values, old - 0.2), old + 0.2)
        surrogate = torch.minimum(ratio * advantage, ratio.clip(1 - clip, 1 + clip) * advantage)
        policy.append(-surrogate)
        value.append(0.5 * torch.maximum((values - returns) ** 2, (held - returns) ** 2))
        entropy.append(told.entropy())
        ratios.append(ratio.detach())
    parts = [torch.cat(each).mean() for each in (policy, value, entropy)]
    return parts[0] + vf * parts[1] - ent * parts[2], torch.cat(ratios)
