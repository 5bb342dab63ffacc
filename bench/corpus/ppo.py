"""Faults of PPO, and changes of its work that do not change learning.

Written, with the category of each, before any rule or signal for PPO existed.
"""

from __future__ import annotations

from bench.corpus.row import Category, Row
from tests.faults import ppo
from tests.faults.laboratory import Benign, Fault


def _taken(fault: Fault, category: Category, incident: str, *, also: Category | None = None) -> Row:
    return Row(
        fault.id,
        incident,
        fault.canary,
        category,
        also=also,
        plant=fault.plant,
        before=fault.before,
        config=fault.config,
    )


def _benign(benign: Benign) -> Row:
    return Row(benign.id, "Other work, the same mathematics.", "ppo", None, config=benign.config)


ROLLOUT = (
    _taken(
        ppo.PAST_EOS,
        "rollout",
        "Tokens after the EOS of a completion count as sampled.",
        also="data",
    ),
    _taken(
        ppo.RETOKENIZED,
        "rollout",
        "Completions are decoded and tokenized again.",
        also="tokenization",
    ),
    _taken(ppo.TEMPERATURE, "rollout", "Logits are not divided by the sampling temperature."),
    _taken(
        ppo.UPDATE_TEMPERATURE,
        "rollout",
        "Updates forget the sampling temperature, the rollout does not.",
        also="objective",
    ),
    _taken(ppo.SCORES_OF_OTHERS, "rollout", "Scores come back in another order."),
    _taken(ppo.CONSTANT_REWARD, "rollout", "Every completion earns the same."),
    _taken(ppo.NO_CACHE, "rollout", "Generation without a cache, by code."),
    _taken(ppo.NO_CACHE_CONFIG, "rollout", "Generation without a cache, by the config."),
)

EXPERIENCE = (
    _taken(ppo.UNCENTRED, "objective", "Advantages are whitened without their mean."),
    _taken(ppo.KL_SIGN, "objective", "The penalty on the KL is a reward."),
    _taken(ppo.WHITENED_EARLY, "objective", "Rewards are whitened before the penalty."),
    _taken(
        ppo.SCORE_MISPLACED,
        "objective",
        "The score is at the last column, not at the last token.",
        also="rollout",
    ),
    _taken(ppo.LAM_IGNORED, "objective", "Lambda is not passed on."),
    _taken(ppo.RETURNS_OF_WHITENED, "objective", "Returns are made of whitened advantages."),
    _taken(ppo.K3_BY_CODE, "objective", "Another estimate of the KL."),
    _taken(ppo.GAMMA_CONFIG, "objective", "Another gamma by the config."),
)

LOSS = (
    _taken(ppo.VALUE_CLIP_OFF, "objective", "Values are not clipped."),
    _taken(
        ppo.RATIO_ALWAYS_ONE,
        "objective",
        "Old log-probabilities are taken anew in each update: the ratio is always 1.",
    ),
    _taken(ppo.VALUE_LOSS_DOUBLED, "objective", "The half of the value loss is lost."),
    _taken(ppo.ENTROPY_SIGN, "objective", "The entropy bonus is a penalty."),
    _taken(ppo.LOSS_PAST_EOS, "objective", "The value loss counts padding."),
    _taken(ppo.MEAN_OF_MEANS, "objective", "Micro-batches are averaged, not their tokens."),
    _taken(ppo.CLIPRANGE_CONFIG, "objective", "Another clip range by the config."),
)

MODELS = (
    _taken(ppo.REFERENCE_IS_POLICY, "adapter", "The reference is the policy itself."),
    _taken(ppo.REFERENCE_DRIFTS, "adapter", "The reference follows the policy."),
    _taken(ppo.VALUES_FROZEN, "adapter", "The value head does not train."),
    _taken(ppo.BETAS, "optimizer", "Another beta2 by code."),
    _taken(ppo.LEARNING_RATE, "optimizer", "A doubled learning rate by code."),
)

ROWS = (*ROLLOUT, *EXPERIENCE, *LOSS, *MODELS)
BENIGN = tuple(map(_benign, ppo.BENIGN))
