"""The formulas of PPO, as functions of tensors. Every `mask` is (rows, tokens), true on the tokens
of a completion up to and with its first EOS; what lies outside it counts nowhere.

- PPO: Schulman et al. 2017, arXiv:1707.06347.
- GAE: Schulman et al. 2016, arXiv:1506.02438.
- On language models, with the penalty on the KL: Ziegler et al. 2019, arXiv:1909.08593; Ouyang et
  al. 2022, arXiv:2203.02155.
- What implementations agree on: Huang et al. 2024, arXiv:2403.17031.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

Estimator = Literal["k1", "k3"]
EPSILON = 1e-8
"""Added to a variance before its root is divided by."""
LEAST_VARIANCE = 1e-10
"""Of values that vary by more than float32's rounding: a hundred thousandth of their mean."""


def completion_mask(completion_ids: torch.Tensor, eos_id: int | None) -> torch.Tensor:
    """(rows, tokens), true up to and with each row's first EOS; everywhere without `eos_id`."""
    if eos_id is None:
        return torch.ones_like(completion_ids, dtype=torch.bool)
    ends = completion_ids.eq(eos_id).long()
    return (ends.cumsum(dim=1) - ends).eq(0)


def kept(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The values of the mask, 0 outside; what is not finite out there leaves no trace."""
    return values.masked_fill(~mask, 0.0)


def kl_estimate(
    logprobs: torch.Tensor, reference: torch.Tensor, estimator: Estimator = "k1"
) -> torch.Tensor:
    """Per token, an estimate of KL(policy || reference) from tokens that the policy sampled.

    k1: log p - log q, unbiased; k3: q/p - 1 - log(q/p), unbiased and never negative (Schulman 2020,
    "Approximating KL divergence").
    """
    ratio = reference - logprobs
    return -ratio if estimator == "k1" else torch.expm1(ratio) - ratio


def last_tokens(mask: torch.Tensor) -> torch.Tensor:
    """(rows,) the place of each row's last token in the mask."""
    return mask.sum(dim=1).long() - 1


def penalised_rewards(
    scores: torch.Tensor, kl: torch.Tensor, mask: torch.Tensor, coefficient: float
) -> torch.Tensor:
    """(rows, tokens): minus `coefficient` times each token's KL, and the row's score at its last
    token (Ziegler et al. 2019, eq. 2).

    Raises ValueError where `scores` is not (rows,): indexing would spread them over other rows.
    """
    if scores.shape != mask.shape[:1]:
        raise ValueError(f"scores {tuple(scores.shape)} for {len(mask)} completions")
    rewards = -coefficient * kept(kl, mask)
    rows = torch.arange(len(scores), device=scores.device)
    rewards[rows, last_tokens(mask)] += scores
    return rewards


@dataclass(frozen=True)
class Moments:
    """Mean and variance over the tokens of a mask, of one rank or of all."""

    mean: torch.Tensor
    variance: torch.Tensor


def moments(values: torch.Tensor, mask: torch.Tensor) -> Moments:
    """Mean, and variance with Bessel's correction where there are two tokens or more."""
    count = mask.sum()
    mean = kept(values, mask).sum() / count
    squares = kept(values - mean, mask).square().sum()
    return Moments(mean, squares / (count - 1).clamp(min=1))


def whiten(
    values: torch.Tensor, mask: torch.Tensor, of: Moments, *, keep_mean: bool = False
) -> torch.Tensor:
    """The values of the mask with mean 0 and variance 1; with `keep_mean`, around their own mean;
    0 outside the mask."""
    whitened = (values - of.mean) * torch.rsqrt(of.variance + EPSILON)
    if keep_mean:
        whitened = whitened + of.mean
    return kept(whitened, mask)


def explained(missed: Moments, returns: Moments) -> torch.Tensor:
    """The share of the returns' variance that the values explain, 1 - Var(returns - values) /
    Var(returns): 1 at best, 0 of values that are all the same, below 0 of values that are worse
    than that. 0 where the returns are all equal but for rounding: there is nothing to explain.

    `missed` are the moments of returns - values, the raw advantages.
    """
    varies = returns.variance > LEAST_VARIANCE * returns.mean.square()
    return torch.where(varies, 1 - missed.variance / returns.variance, 0.0 * returns.variance)


def advantages_at_once(
    rewards: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, gamma: float, lam: float
) -> torch.Tensor:
    """(rows, tokens): generalised advantages, of all rows and tokens together.

    A_t = sum over k >= t of (gamma lambda)^(k-t) d_k, with d_k = r_k + gamma V_(k+1) - V_k (GAE,
    eq. 16). After a row's last token its value is 0: the sequence is over. The sums are doubled in
    length until they are whole: that of 2n terms is that of n, and that of the n after them.
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
    """The same, token by token and row by row in Python: A_t = d_t + gamma lambda A_(t+1)."""
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
    """A loss summed over the tokens of a mask, and how many of them were clipped."""

    total: torch.Tensor
    clipped: torch.Tensor


def policy_loss(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    cliprange: float,
) -> Loss:
    """Minus the clipped surrogate (PPO, eq. 7). Clipped: the ratio's bound decides the loss."""
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
    """Half the larger of the squared errors of the value and of the value held within
    `cliprange_value` of that of the rollout, as OpenAI's baselines have it (Engstrom et al. 2020,
    arXiv:2005.12729, section 3)."""
    held = old_values + (values - old_values).clamp(-cliprange_value, cliprange_value)
    free, bounded = kept(values - returns, mask).square(), kept(held - returns, mask).square()
    return Loss(0.5 * torch.maximum(free, bounded).sum(), (bounded > free).sum().detach())


def entropy_of(log_probabilities: torch.Tensor) -> torch.Tensor:
    """(rows, tokens) in nats, from log-probabilities (rows, tokens, vocabulary). Tokens that cannot
    be sampled, at minus infinity, add nothing."""
    finite = log_probabilities.clamp(min=torch.finfo(log_probabilities.dtype).min)
    return -(finite.exp() * finite).sum(dim=-1)
