"""Compute rewards, advantages and returns of a scored rollout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from canary.training.trainers.ppo.objective import (
    Estimator,
    Moments,
    advantages_at_once,
    advantages_by_loop,
    explained,
    kept,
    kl_estimate,
    penalised_rewards,
    whiten,
)
from canary.training.trainers.ppo.rollout import Rollout

if TYPE_CHECKING:
    from canary.training.trainers.ppo.building import PPOArguments

Measure = Callable[[torch.Tensor, torch.Tensor], Moments]
"""Returns the moments of values over a mask, on this rank or on all."""


@dataclass(frozen=True)
class Experience:
    """A rollout with its advantages. `kl`: KL to the reference model, (rows, tokens)."""

    rollout: Rollout
    kl: torch.Tensor
    explained_variance: torch.Tensor
    """See `explained`; over the tokens of all ranks that `measure` covers."""


def experience(
    rollout: Rollout,
    arguments: PPOArguments,
    coefficient: float,
    measure: Measure,
    *,
    by_loop: bool = False,
) -> Experience:
    """Apply the KL penalty, whiten rewards if configured, and estimate whitened advantages.

    `rollout` needs scores, values, and log-probabilities of policy and reference model.
    `coefficient` is the weight of the KL in this step.
    """
    assert rollout.scores is not None
    assert rollout.logprobs is not None
    assert rollout.reference_logprobs is not None
    assert rollout.values is not None
    mask = rollout.completion_mask
    estimator: Estimator = "k3" if arguments.kl_estimator == "k3" else "k1"
    kl = kept(kl_estimate(rollout.logprobs, rollout.reference_logprobs, estimator), mask)
    rewards = penalised_rewards(rollout.scores, kl, mask, coefficient)
    if arguments.whiten_rewards:
        rewards = whiten(rewards, mask, measure(rewards, mask), keep_mean=True)
    estimate = advantages_by_loop if by_loop else advantages_at_once
    raw = estimate(rewards, rollout.values, mask, arguments.gamma, arguments.lam)
    returns = kept(raw + rollout.values, mask)
    of_raw = measure(raw, mask)
    advantages = whiten(raw, mask, of_raw)
    complete = rollout.with_(rewards=rewards, advantages=advantages, returns=returns)
    return Experience(complete, kl, explained(of_raw, measure(returns, mask)))
