"""The formulas of PPO, as functions of tensors. Every `mask` is (rows, tokens), true on a
completion's tokens up to and including its first EOS; tokens outside it are ignored.

- PPO: Schulman et al. 2017, arXiv:1707.06347.
- GAE: Schulman et al. 2016, arXiv:1506.02438.
- For language models, with a KL penalty: Ziegler et al. 2019, arXiv:1909.08593; Ouyang et al.
  2022, arXiv:2203.02155.
- Implementation details: Huang et al. 2024, arXiv:2403.17031.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

if TYPE_CHECKING:
    from canary.training.trainers.ppo.building import PPOArguments
    from canary.training.trainers.ppo.rollout import Rollout

Estimator = Literal["k1", "k3"]
EPSILON = 1e-8
"""Added to a variance before division by its root."""
LEAST_VARIANCE = 1e-10
"""Times the squared mean: less variance is float32 rounding (a deviation of 1e-5 of the mean)."""


def completion_mask(completion_ids: torch.Tensor, eos_id: int | None) -> torch.Tensor:
    """Return (rows, tokens): true up to and including a row's first EOS; all true without one."""
    if eos_id is None:
        return torch.ones_like(completion_ids, dtype=torch.bool)
    ends = completion_ids.eq(eos_id).long()
    return (ends.cumsum(dim=1) - ends).eq(0)


def kept(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the values with 0 outside the mask, also where they are not finite."""
    return values.masked_fill(~mask, 0.0)


def kl_estimate(
    logprobs: torch.Tensor, reference: torch.Tensor, estimator: Estimator = "k1"
) -> torch.Tensor:
    """Return a per-token estimate of KL(policy || reference) from tokens that the policy sampled.

    k1: log p - log q, unbiased; k3: q/p - 1 - log(q/p), unbiased and never negative (Schulman 2020,
    "Approximating KL divergence").
    """
    ratio = reference - logprobs
    return -ratio if estimator == "k1" else torch.expm1(ratio) - ratio


def last_tokens(mask: torch.Tensor) -> torch.Tensor:
    """Return (rows,): the place of each row's last token in the mask."""
    return mask.sum(dim=1).long() - 1


def penalised_rewards(
    scores: torch.Tensor, kl: torch.Tensor, mask: torch.Tensor, coefficient: float
) -> torch.Tensor:
    """Return (rows, tokens): minus `coefficient` times each token's KL, plus the row's score at its
    last token (Ziegler et al. 2019, eq. 2).

    Raises ValueError if `scores` is not (rows,): indexing would broadcast them over other rows.
    """
    if scores.shape != mask.shape[:1]:
        raise ValueError(f"scores {tuple(scores.shape)} for {len(mask)} completions")
    rewards = -coefficient * kept(kl, mask)
    rows = torch.arange(len(scores), device=scores.device)
    rewards[rows, last_tokens(mask)] += scores
    return rewards


@dataclass(frozen=True)
class Moments:
    """Mean and variance over the tokens of a mask, on one rank or on all."""

    mean: torch.Tensor
    variance: torch.Tensor


def moments(values: torch.Tensor, mask: torch.Tensor) -> Moments:
    """Return the mean, and the variance with Bessel's correction if the mask has several tokens."""
    count = mask.sum()
    mean = kept(values, mask).sum() / count
    squares = kept(values - mean, mask).square().sum()
    return Moments(mean, squares / (count - 1).clamp(min=1))


def whiten(
    values: torch.Tensor, mask: torch.Tensor, of: Moments, *, keep_mean: bool = False
) -> torch.Tensor:
    """Return values with variance 1 and mean 0 (`keep_mean`: their mean); 0 outside the mask."""
    whitened = (values - of.mean) * torch.rsqrt(of.variance + EPSILON)
    if keep_mean:
        whitened = whitened + of.mean
    return kept(whitened, mask)


def explained(missed: Moments, returns: Moments) -> torch.Tensor:
    """Return the share of the returns' variance that the values explain:
    1 - Var(returns - values) / Var(returns).

    1 is best, constant values give 0, worse ones less than 0. It is 0 if all returns are equal
    except for rounding. `missed`: the moments of returns - values, the raw advantages.
    """
    varies = returns.variance > LEAST_VARIANCE * returns.mean.square()
    return torch.where(varies, 1 - missed.variance / returns.variance, 0.0 * returns.variance)


def advantages_at_once(
    rewards: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, gamma: float, lam: float
) -> torch.Tensor:
    """Return (rows, tokens): generalised advantages, for all rows and tokens at once.

    A_t = sum over k >= t of (gamma lambda)^(k-t) d_k, with d_k = r_k + gamma V_(k+1) - V_k (GAE,
    eq. 16). The value after a row's last token is 0: the sequence is over. Each pass doubles the
    terms in the sums: the sum of 2n terms is that of the first n plus that of the next n.
    """
    values = kept(values, mask)
    following = torch.nn.functional.pad(values[:, 1:], (0, 1))
    found = kept(rewards + gamma * following - values, mask)
    terms = 1
    while terms < found.shape[1]:
        later = torch.nn.functional.pad(found[:, terms:], (0, terms))
        found = found + (gamma * lam) ** terms * later
        terms *= 2
    return kept(found, mask)


def advantages_by_loop(
    rewards: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, gamma: float, lam: float
) -> torch.Tensor:
    """Return the same, row by row and token by token: A_t = d_t + gamma lambda A_(t+1)."""
    found = torch.zeros_like(rewards)
    for row in range(rewards.shape[0]):
        length = int(mask[row].sum())
        later = torch.zeros((), dtype=rewards.dtype, device=rewards.device)
        for place in reversed(range(length)):
            following = values[row, place + 1] if place + 1 < length else 0.0
            delta = rewards[row, place] + gamma * following - values[row, place]
            later = delta + gamma * lam * later
            found[row, place] = later
    return found


@dataclass(frozen=True)
class Loss:
    """A loss summed over the tokens of a mask, and the number of clipped tokens."""

    total: torch.Tensor
    clipped: torch.Tensor


def policy_loss(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    cliprange: float,
) -> Loss:
    """Return minus the clipped surrogate (PPO, eq. 7). A token counts as clipped if the bound of
    its ratio decides the loss."""
    advantages = kept(advantages, mask)
    ratio = torch.exp(kept(logprobs - old_logprobs, mask))
    free = -advantages * ratio
    bounded = -advantages * ratio.clamp(1 - cliprange, 1 + cliprange)
    return Loss(torch.maximum(free, bounded).sum(), (bounded > free).sum().detach())


def value_loss(
    values: torch.Tensor,
    old_values: torch.Tensor,
    returns: torch.Tensor,
    mask: torch.Tensor,
    cliprange_value: float,
) -> Loss:
    """Return half the larger squared error: that of the value, or of the value clipped to within
    `cliprange_value` of the rollout's value. This follows OpenAI's baselines (Engstrom et al. 2020,
    arXiv:2005.12729, section 3)."""
    clipped = old_values + (values - old_values).clamp(-cliprange_value, cliprange_value)
    free, bounded = kept(values - returns, mask).square(), kept(clipped - returns, mask).square()
    return Loss(0.5 * torch.maximum(free, bounded).sum(), (bounded > free).sum().detach())


def entropy_of(log_probabilities: torch.Tensor) -> torch.Tensor:
    """Return (rows, tokens) in nats, from log-probabilities (rows, tokens, vocabulary). Tokens at
    minus infinity, which cannot be sampled, add nothing."""
    finite = log_probabilities.clamp(min=torch.finfo(log_probabilities.dtype).min)
    return -(finite.exp() * finite).sum(dim=-1)


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


MOST = 0.2
"""Largest relative error that one adaptation uses; larger errors are clipped."""


@dataclass
class KLCoefficient:
    """`value` is the weight for the next rollout. Without a `target` it never changes."""

    value: float
    target: float | None = None
    horizon: int = 10_000

    def update(self, kl: float, completions: int) -> None:
        """Apply proportional control on a log scale (Ziegler et al. 2019, section 2.2).

        `kl`: mean KL per completion of the last rollout, in nats; `completions`: their number.
        """
        if self.target is None:
            return
        error = max(-MOST, min(MOST, kl / self.target - 1))
        self.value *= 1 + error * completions / self.horizon
