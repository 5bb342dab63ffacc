"""Rewards and advantages of PPO against plain loops in float64, on ragged batches."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from canary.training.trainers.ppo.figures import moments_of_ranks
from canary.training.trainers.ppo.objective import (
    Experience,
    Moments,
    advantages_at_once,
    advantages_by_loop,
    completion_mask,
    experience,
    explained,
    kl_estimate,
    last_tokens,
    moments,
    penalised_rewards,
    whiten,
)
from canary.training.trainers.ppo.rollout import Rollout

WAYS = {"at once": advantages_at_once, "by loop": advantages_by_loop}
LENGTHS = st.lists(st.integers(1, 33), min_size=1, max_size=6)


def ragged(lengths: list[int]) -> torch.Tensor:
    return torch.arange(max(lengths)).unsqueeze(0) < torch.tensor(lengths).unsqueeze(1)


def plain_advantages(
    rewards: list[float], values: list[float], gamma: float, lam: float
) -> list[float]:
    """GAE by its definition: each advantage a sum of its own over all later differences."""
    count = len(rewards)
    following = [*values[1:], 0.0]
    deltas = [rewards[t] + gamma * following[t] - values[t] for t in range(count)]
    return [
        sum((gamma * lam) ** (k - t) * deltas[k] for k in range(t, count)) for t in range(count)
    ]


@settings(max_examples=40)
@given(
    lengths=LENGTHS,
    seed=st.integers(0, 2**16),
    gamma=st.sampled_from([1.0, 0.99, 0.5]),
    lam=st.sampled_from([0.0, 0.5, 0.95, 1.0]),
)
def test_advantages_are_those_of_the_definition(
    lengths: list[int], seed: int, gamma: float, lam: float
) -> None:
    mask = ragged(lengths)
    drawn = torch.Generator().manual_seed(seed)
    rewards = torch.randn(mask.shape, generator=drawn, dtype=torch.float64)
    values = torch.randn(mask.shape, generator=drawn, dtype=torch.float64)
    for name, way in WAYS.items():
        found = way(rewards, values, mask, gamma, lam)
        assert not found[~mask].any(), name
        for row, length in enumerate(lengths):
            wanted = plain_advantages(
                rewards[row, :length].tolist(), values[row, :length].tolist(), gamma, lam
            )
            assert found[row, :length].tolist() == pytest.approx(wanted, rel=1e-10, abs=1e-10), name


@settings(max_examples=30)
@given(ids=st.lists(st.lists(st.integers(0, 4), min_size=9, max_size=9), min_size=1, max_size=4))
def test_the_mask_is_true_up_to_and_with_the_first_end(ids: list[list[int]]) -> None:
    found = completion_mask(torch.tensor(ids), 3).tolist()
    for row, mask in zip(ids, found, strict=True):
        length = row.index(3) + 1 if 3 in row else len(row)
        assert mask == [place < length for place in range(len(row))]


def test_the_score_comes_at_the_last_token_and_the_penalty_at_each() -> None:
    mask = ragged([3, 1, 4])
    kl = torch.tensor([[1.0, 2, 3, 99], [4, 99, 99, 99], [5, 6, 7, 8]])
    found = penalised_rewards(torch.tensor([10.0, 20, 30]), kl, mask, 0.5)
    assert found.tolist() == [[-0.5, -1, 8.5, 0], [18, 0, 0, 0], [-2.5, -3, -3.5, 26]]
    assert last_tokens(mask).tolist() == [2, 0, 3]


def test_kl_estimates_of_a_sampled_token() -> None:
    """Both are unbiased; k3 is never negative."""
    policy = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    other = torch.tensor([0.4, 0.4, 0.2], dtype=torch.float64)
    exact = (policy * (policy / other).log()).sum()
    for estimator in ("k1", "k3"):
        each = kl_estimate(policy.log(), other.log(), estimator)  # type: ignore[arg-type]
        assert (policy * each).sum().item() == pytest.approx(exact.item(), rel=1e-12)
    assert (kl_estimate(policy.log(), other.log(), "k3") > 0).all()
    assert kl_estimate(policy.log(), other.log())[0].item() == pytest.approx(-0.693147, abs=1e-6)


@settings(max_examples=30)
@given(lengths=st.lists(st.integers(1, 20), min_size=2, max_size=5), seed=st.integers(0, 999))
def test_whitened_values_have_mean_0_and_variance_1(lengths: list[int], seed: int) -> None:
    mask = ragged(lengths)
    drawn = torch.Generator().manual_seed(seed)
    values = 5 + 3 * torch.randn(mask.shape, generator=drawn, dtype=torch.float64)
    found = whiten(values, mask, moments(values, mask))
    assert not found[~mask].any()
    assert found[mask].mean().item() == pytest.approx(0, abs=1e-9)
    assert found[mask].var().item() == pytest.approx(1, abs=1e-6)
    shifted = whiten(values, mask, moments(values, mask), keep_mean=True)
    assert shifted[mask].mean().item() == pytest.approx(values[mask].mean().item(), rel=1e-9)
    assert shifted[mask].var().item() == pytest.approx(1, abs=1e-6)


class Ranks:
    """Stands for the accelerator of several ranks: knows what each of them hands in."""

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts
        self.num_processes = len(parts)
        self.asked = 0

    def reduce(self, tensor: torch.Tensor, how: str) -> torch.Tensor:
        assert how == "sum"
        self.asked += 1
        values = [values for values, _ in self.parts]
        masks = [mask for _, mask in self.parts]
        if self.asked == 1:
            return sum(  # type: ignore[return-value]
                torch.stack([v[m].sum(), m.sum().to(v.dtype)])
                for v, m in zip(values, masks, strict=True)
            )
        mean = torch.cat([v[m] for v, m in zip(values, masks, strict=True)]).mean()
        own = (values[0][masks[0]] - mean).square().sum()
        assert tensor.item() == pytest.approx(own.item(), rel=1e-9)
        return sum((v[m] - mean).square().sum() for v, m in zip(values, masks, strict=True))  # type: ignore[return-value]


def test_moments_of_two_ranks_are_those_of_the_whole_batch() -> None:
    mask = ragged([9, 2, 4, 7])
    values = torch.randn(mask.shape, dtype=torch.float64)
    ranks = Ranks([(values[:2], mask[:2]), (values[2:], mask[2:])])
    found = moments_of_ranks(values[:2], mask[:2], ranks)
    whole = moments(values, mask)
    assert found.mean.item() == pytest.approx(whole.mean.item(), rel=1e-12)
    assert found.variance.item() == pytest.approx(whole.variance.item(), rel=1e-12)
    assert ranks.asked == 2


@pytest.mark.parametrize("shape", [(1,), (3, 1), ()])
def test_scores_of_other_rows_than_the_completions_are_refused(shape: tuple[int, ...]) -> None:
    mask = ragged([4, 1, 6])
    with pytest.raises(ValueError, match="for 3 completions"):
        penalised_rewards(torch.ones(shape), torch.zeros(mask.shape), mask, 0.1)


@dataclasses.dataclass
class Settings:
    """The arguments that experience reads."""

    gamma: float = 0.9
    lam: float = 0.8
    kl_estimator: str = "k1"
    whiten_rewards: bool = False


def a_rollout(mask: torch.Tensor, behind: float = 0.0) -> Rollout:
    """Random, with `behind` in all places behind the mask."""
    drawn = torch.Generator().manual_seed(5)

    def numbers(shift: float) -> torch.Tensor:
        values = shift + torch.randn(mask.shape, generator=drawn, dtype=torch.float64)
        return values.masked_fill(~mask, behind)

    return Rollout(
        prompt_ids=torch.ones(len(mask), 2, dtype=torch.long),
        prompt_mask=torch.ones(len(mask), 2, dtype=torch.long),
        completion_ids=torch.ones(mask.shape, dtype=torch.long),
        completion_mask=mask,
        scores=torch.arange(1.0, 1 + len(mask), dtype=torch.float64),
        logprobs=numbers(-2),
        reference_logprobs=numbers(-2),
        values=numbers(0.5),
        entropy=numbers(1),
    )


def found_of(rollout: Rollout, arguments: Settings, by_loop: bool = False) -> Experience:
    return experience(rollout, arguments, 0.3, moments, by_loop=by_loop)  # type: ignore[arg-type]


def plainly_whitened(rows: list[list[float]], keep_mean: bool) -> list[list[float]]:
    flat = torch.tensor([value for row in rows for value in row], dtype=torch.float64)
    mean, scale = flat.mean().item(), (flat.var() + 1e-8).sqrt().item()
    return [[(value - mean) / scale + mean * keep_mean for value in row] for row in rows]


@pytest.mark.parametrize("by_loop", [False, True])
@pytest.mark.parametrize("whitened", [False, True])
@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_experience_is_the_whole_chain_in_its_order(
    by_loop: bool, whitened: bool, estimator: str
) -> None:
    """Penalty, score, whitening of rewards, advantages, returns from the raw ones, whitening."""
    lengths = [4, 1, 6]
    rollout = a_rollout(ragged(lengths))
    found = found_of(rollout, Settings(whiten_rewards=whitened, kl_estimator=estimator), by_loop)
    logprobs, reference, values = (
        [tensor[row, :length].tolist() for row, length in enumerate(lengths)]
        for tensor in (rollout.logprobs, rollout.reference_logprobs, rollout.values)
        if tensor is not None
    )
    rewards: list[list[float]] = []
    for row, pairs in enumerate(zip(logprobs, reference, strict=True)):
        moved = [a - b for a, b in zip(*pairs, strict=True)]
        kl = moved if estimator == "k1" else [math.exp(-d) - 1 + d for d in moved]
        rewards.append([-0.3 * each for each in kl])
        rewards[row][-1] += float(row + 1)
    if whitened:
        rewards = plainly_whitened(rewards, keep_mean=True)
    both = list(zip(rewards, values, strict=True))
    raw = [plain_advantages(r, v, 0.9, 0.8) for r, v in both]
    returns = [
        [a + b for a, b in zip(*pair, strict=True)] for pair in zip(raw, values, strict=True)
    ]
    wanted = {"rewards": rewards, "returns": returns, "advantages": plainly_whitened(raw, False)}
    for name, rows in wanted.items():
        tensor = found.rollout.tensors()[name]
        assert not tensor[~rollout.completion_mask].any(), name
        for row, length in enumerate(lengths):
            assert tensor[row, :length].tolist() == pytest.approx(rows[row], rel=1e-9), name


@pytest.mark.parametrize("behind", [7.5, float("nan"), float("-inf")])
@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_nothing_behind_an_end_changes_anything(behind: float, estimator: str) -> None:
    mask = ragged([4, 1, 6])
    settings = Settings(whiten_rewards=True, kl_estimator=estimator)
    for by_loop in (False, True):
        clean = found_of(a_rollout(mask), settings, by_loop)
        dirty = found_of(a_rollout(mask, behind), settings, by_loop)
        for name in ("rewards", "advantages", "returns"):
            one, other = clean.rollout.tensors()[name], dirty.rollout.tensors()[name]
            assert torch.equal(one, other), (name, by_loop)
        assert torch.equal(clean.kl, dirty.kl)


@pytest.mark.parametrize(
    ("missed", "returns", "wanted"),
    [
        (Moments(torch.tensor(0.0), torch.tensor(0.0)), (0.5, 2.0), 1.0),
        (Moments(torch.tensor(0.0), torch.tensor(6.0)), (0.5, 2.0), -2.0),
        (Moments(torch.tensor(0.0), torch.tensor(6.0)), (0.5, 0.0), 0.0),
        (Moments(torch.tensor(0.0), torch.tensor(1e-14)), (0.5, 1e-15), 0.0),
    ],
    ids=["all", "worse than none", "nothing to explain", "rounding alone"],
)
def test_the_share_that_values_explain(
    missed: Moments, returns: tuple[float, float], wanted: float
) -> None:
    mean, variance = map(torch.tensor, returns)
    assert explained(missed, Moments(mean, variance)).item() == pytest.approx(wanted)
