"""Faults of PPO: of what is made of a rollout, of the loss, and of the models behind both."""

from __future__ import annotations

from tests.faults.laboratory import PPO, Benign, Fault

# Rollout: completions, scores, log-probabilities.

PAST_EOS = Fault(
    "ppo_past_eos",
    "ppo",
    plant="""
import torch, canary.training.trainers.ppo.rollout as rollout
rollout.completion_mask = lambda ids, eos_id: torch.ones_like(ids, dtype=torch.bool)
""",
    cause="rollout",
    stage="batches",
    telling=("batches", "sampled_ids_trained"),
)

RETOKENIZED = Fault(
    "ppo_retokenized",
    "ppo",
    plant="""
import torch, canary.training.trainers.ppo.trainer as loop
from canary.training.trainers.ppo.objective import completion_mask
original, coder = loop.sample, trainer.processing_class
def again(policy, prompts, sampling):
    found = original(policy, prompts, sampling)
    texts = coder.batch_decode(found.completion_ids, skip_special_tokens=True)
    ids = torch.full_like(found.completion_ids, coder.pad_token_id)
    for row, text in enumerate(texts):
        tokens = coder(text.strip(), add_special_tokens=False)["input_ids"]
        tokens = (tokens + [coder.eos_token_id])[: ids.shape[1]]
        ids[row, : len(tokens)] = torch.tensor(tokens)
    mask = completion_mask(ids, coder.eos_token_id)
    return found.with_(completion_ids=ids, completion_mask=mask)
loop.sample = again
""",
    cause="rollout",
    stage="trajectory",
    telling=("trajectory", "sampled_ids_trained"),
)

TEMPERATURE = Fault(
    "ppo_temperature_lost",
    "ppo",
    plant="""
import dataclasses
trainer._request = dataclasses.replace(trainer._request, temperature=1.0)
""",
    cause="rollout",
    stage="rollout",
    signals=("logprobs", "reference_logprobs", "entropy"),
    telling=("rollout", "trajectory"),
)

UPDATE_TEMPERATURE = Fault(
    "ppo_update_temperature",
    "ppo",
    plant="""
import dataclasses
original, right = trainer._forward, trainer._request
wrong = dataclasses.replace(right, temperature=1.0)
def forward(*args, **kwargs):
    trainer._request = wrong if trainer.model.training else right
    return original(*args, **kwargs)
trainer._forward = forward
""",
    cause="rollout",
    stage="first_loss",
    telling=("first_loss", "starts_at_ratio_one"),
)

SCORES_OF_OTHERS = Fault(
    "ppo_scores_of_others",
    "ppo",
    plant="""
original = trainer.scorer.score
trainer.scorer.score = lambda samples: original(samples).roll(1)
""",
    cause="rollout",
    stage="rollout",
    signals=("scores",),
    telling=("rollout", "first_loss"),
)

CONSTANT_REWARD = Fault(
    "ppo_constant_reward",
    "ppo",
    plant="""
trainer.scorer.functions = [lambda completions, **columns: [0.5] * len(completions)]
""",
    cause="rollout",
    stage="rollout",
    signals=("scores",),
    telling=("rollout", "reward_varies"),
)

NO_CACHE = Fault(
    "ppo_no_cache",
    "ppo",
    plant="""
import dataclasses
trainer.sampling = dataclasses.replace(trainer.sampling, options=(("use_cache", False),))
""",
    cause="rollout",
    stage="work",
    telling=("tokens_fed",),
)

# What is learned from: rewards, advantages, returns.

UNCENTRED = Fault(
    "ppo_uncentred",
    "ppo",
    plant="""
import torch, canary.training.trainers.ppo.objective as objective
original = objective.whiten
def whiten(values, mask, of, *, keep_mean=False):
    if keep_mean:
        return original(values, mask, of, keep_mean=True)
    return values * torch.rsqrt(of.variance + 1e-8) * mask
objective.whiten = whiten
""",
    cause="objective",
    stage="rollout",
    signals=("advantages",),
    telling=("rollout", "first_loss", "advantages_scaled"),
)

KL_SIGN = Fault(
    "ppo_kl_sign",
    "ppo",
    plant="""
import canary.training.trainers.ppo.objective as objective
original = objective.penalised_rewards
def rewards(scores, kl, mask, coefficient):
    return original(scores, kl, mask, -coefficient)
objective.penalised_rewards = rewards
""",
    cause="objective",
    stage="trajectory",
    signals=("rewards",),
    telling=("trajectory",),
)

WHITENED_EARLY = Fault(
    "ppo_whitened_early",
    "ppo_whitened",
    plant="""
import canary.training.trainers.ppo.objective as objective
from canary.training.trainers.ppo.objective import moments
original, whiten = objective.penalised_rewards, objective.whiten
def rewards(scores, kl, mask, coefficient):
    bare = original(scores, 0 * kl, mask, coefficient)
    return whiten(bare, mask, moments(bare, mask), keep_mean=True) - coefficient * kl * mask
def only_advantages(values, mask, of, *, keep_mean=False):
    return values if keep_mean else whiten(values, mask, of)
objective.penalised_rewards, objective.whiten = rewards, only_advantages
""",
    cause="objective",
    stage="trajectory",
    signals=("rewards",),
    telling=("trajectory",),
)

SCORE_MISPLACED = Fault(
    "ppo_score_misplaced",
    "ppo",
    plant="""
import torch, canary.training.trainers.ppo.objective as objective
def last_tokens(mask):
    return torch.full((len(mask),), mask.shape[1] - 1)
objective.last_tokens = last_tokens
""",
    cause="objective",
    stage="rollout",
    signals=("rewards",),
    telling=("rollout", "first_loss"),
)

LAM_IGNORED = Fault(
    "ppo_lam_ignored",
    "ppo",
    plant="""
import canary.training.trainers.ppo.objective as objective
original = objective.advantages_at_once
def advantages(rewards, values, mask, gamma, lam):
    return original(rewards, values, mask, gamma, 1.0)
objective.advantages_at_once = advantages
""",
    cause="objective",
    stage="rollout",
    signals=("advantages", "returns"),
    telling=("rollout", "first_loss"),
)

RETURNS_OF_WHITENED = Fault(
    "ppo_returns_of_whitened",
    "ppo",
    plant="""
import dataclasses, canary.training.trainers.ppo.trainer as loop
original = loop.experience
def experience(*args, **kwargs):
    found = original(*args, **kwargs)
    rollout = found.rollout
    returns = (rollout.advantages + rollout.values) * rollout.completion_mask
    return dataclasses.replace(found, rollout=rollout.with_(returns=returns))
loop.experience = experience
""",
    cause="objective",
    stage="rollout",
    signals=("returns",),
    telling=("rollout", "first_loss"),
)

K3_BY_CODE = Fault(
    "ppo_other_estimate",
    "ppo",
    plant="""
import canary.training.trainers.ppo.objective as objective
original = objective.kl_estimate
def kl_estimate(logprobs, reference, estimator):
    return original(logprobs, reference, "k3")
objective.kl_estimate = kl_estimate
""",
    cause="objective",
    stage="trajectory",
    signals=("rewards",),
    telling=("trajectory",),
)

# The loss.

VALUE_CLIP_OFF = Fault(
    "ppo_value_clip_off",
    "ppo",
    plant="""
import canary.training.trainers.ppo.objective as objective
original = objective.value_loss
def value_loss(values, old_values, returns, mask, cliprange_value):
    return original(values, old_values, returns, mask, float("inf"))
objective.value_loss = value_loss
""",
    cause="objective",
    stage="trajectory",
    telling=("trajectory",),
)

RATIO_ALWAYS_ONE = Fault(
    "ppo_ratio_always_one",
    "ppo",
    plant="""
import canary.training.trainers.ppo.objective as objective
original = objective.policy_loss
def policy_loss(logprobs, old_logprobs, advantages, mask, cliprange):
    return original(logprobs, logprobs.detach(), advantages, mask, cliprange)
objective.policy_loss = policy_loss
""",
    cause="objective",
    stage="trajectory",
    telling=("trajectory",),
)

VALUE_LOSS_DOUBLED = Fault(
    "ppo_value_loss_doubled",
    "ppo",
    plant="""
import canary.training.trainers.ppo.objective as objective
original = objective.value_loss
def value_loss(*args):
    found = original(*args)
    return objective.Loss(2 * found.total, found.clipped)
objective.value_loss = value_loss
""",
    cause="objective",
    stage="first_loss",
    telling=("first_loss", "first_gradient"),
)

ENTROPY_SIGN = Fault(
    "ppo_entropy_sign",
    "ppo",
    plant="""
original = trainer._forward
def forward(micro, *, with_entropy):
    logprobs, values, entropy = original(micro, with_entropy=with_entropy)
    return logprobs, values, -entropy if trainer.model.training else entropy
trainer._forward = forward
""",
    cause="objective",
    stage="first_loss",
    telling=("first_loss", "first_gradient"),
)

LOSS_PAST_EOS = Fault(
    "ppo_loss_past_eos",
    "ppo",
    plant="""
import torch, canary.training.trainers.ppo.objective as objective
original = objective.value_loss
def value_loss(values, old_values, returns, mask, cliprange_value):
    return original(values, old_values, returns, torch.ones_like(mask), cliprange_value)
objective.value_loss = value_loss
""",
    cause="objective",
    stage="trajectory",
    telling=("trajectory",),
)

MEAN_OF_MEANS = Fault(
    "ppo_mean_of_means",
    "ppo",
    plant="""
original = trainer._loss
def loss(micro, tokens, figures):
    return original(micro, 2 * micro.completion_mask.sum(), figures)
trainer._loss = loss
""",
    cause="objective",
    stage="first_gradient",
    telling=("first_gradient", "trajectory"),
)

# The models, and what moves them.

REFERENCE_IS_POLICY = Fault(
    "ppo_reference_is_policy",
    "ppo",
    plant="""
from canary.training.trainers.ppo.model import Reference
trainer.ref_model = trainer.model.policy
trainer.reference = Reference(trainer.ref_model, trainer.model.policy)
""",
    cause="adapter",
    stage="trajectory",
    signals=("reference_logprobs",),
    telling=("trajectory", "frozen_unchanged"),
)

REFERENCE_DRIFTS = Fault(
    "ppo_reference_drifts",
    "ppo",
    plant="""
from transformers import TrainerCallback
class Follow(TrainerCallback):
    def on_step_end(self, args, state, control, **known):
        trainer.ref_model.load_state_dict(trainer.model.policy.state_dict())
trainer.add_callback(Follow())
""",
    cause="adapter",
    stage="trajectory",
    signals=("reference_logprobs",),
    telling=("trajectory", "frozen_unchanged"),
)

VALUES_FROZEN = Fault(
    "ppo_values_frozen",
    "ppo",
    plant="trainer.model.value_head.requires_grad_(False)",
    cause="adapter",
    stage="model",
    telling=("model", "trajectory"),
)

BETAS = Fault(
    "ppo_betas",
    "ppo",
    plant="""
original = trainer.create_optimizer_and_scheduler
def create(steps):
    original(steps)
    for group in trainer.optimizer.param_groups:
        group["betas"] = (0.9, 0.95)
trainer.create_optimizer_and_scheduler = create
""",
    cause="optimizer",
    stage="trajectory",
    telling=("trajectory",),
)

LEARNING_RATE = Fault(
    "ppo_learning_rate",
    "ppo",
    plant="trainer.args.learning_rate *= 2",
    cause="optimizer",
    stage="first_update",
    signals=("learning_rate",),
    telling=("first_update", "trajectory"),
)

# By the config.

GAMMA_CONFIG = Fault(
    "ppo_gamma_config",
    "ppo",
    config={"ppo": PPO | {"gamma": 0.9}},
    cause="objective",
    stage="config",
    signals=("ppo.gamma",),
    telling=("rollout", "first_loss"),
)

CLIPRANGE_CONFIG = Fault(
    "ppo_cliprange_config",
    "ppo",
    config={"ppo": PPO | {"cliprange": 0.02}},
    cause="objective",
    stage="config",
    signals=("ppo.cliprange",),
    telling=("trajectory",),
)

NO_CACHE_CONFIG = Fault(
    "ppo_no_cache_config",
    "ppo",
    config={"speed": {"kv_cache": False}},
    cause="rollout",
    stage="config",
    signals=("speed.kv_cache",),
    telling=("tokens_fed",),
)

# The same mathematics.

BENIGN = [
    Benign("ppo_again", "ppo"),
    Benign("ppo_threads", "ppo", config={"threads": 2}),
    Benign("ppo_bucketed", "ppo", config={"speed": {"lengths": "bucketed"}}),
    Benign("ppo_whole_logprobs", "ppo", config={"speed": {"logprobs": "whole"}}),
    Benign("ppo_eager_attention", "ppo", config={"attn_implementation": "eager"}),
]
"""Little or no more work."""

OTHER_WORK = [
    Benign(
        "ppo_work_of_others",
        "ppo",
        config={
            "batch_size": 4,
            "gradient_accumulation_steps": 1,
            "attn_implementation": "eager",
            "speed": {"lengths": "bucketed", "shared_forward": False, "advantages": "loop"},
        },
    ),
    Benign("ppo_fixed_widths", "ppo", config={"speed": {"lengths": "fixed"}}),
]
"""More work, for the same result: their counts may fail, and nothing that is learned."""
