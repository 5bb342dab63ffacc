"""Losses of PPO against the textbook's formulas and autograd; the KL that adapts and stops."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from canary.training.trainers.ppo.figures import Figures
from canary.training.trainers.ppo.objective import (
    KLCoefficient,
    Loss,
    entropy_of,
    policy_loss,
    value_loss,
)
from tests.unit.training.test_ppo_advantages import ragged

LENGTHS = [6, 1, 4]


def drawn(seed: int, *, scale: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(3, 6, generator=generator, dtype=torch.float64)


def textbook_policy(new: Any, old: Any, advantages: Any, lengths: list[int], clip: float) -> Any:
    """Minus the objective L^CLIP of Schulman et al. 2017, token by token."""
    total = torch.zeros((), dtype=torch.float64)
    for row, length in enumerate(lengths):
        for t in range(length):
            ratio = new[row, t].exp() / old[row, t].exp()
            advantage = advantages[row, t]
            held = min(max(ratio, 1 - clip), 1 + clip)
            total = total - min(ratio * advantage, held * advantage)
    return total


def textbook_value(new: Any, old: Any, returns: Any, lengths: list[int], clip: float) -> Any:
    total = torch.zeros((), dtype=torch.float64)
    for row, length in enumerate(lengths):
        for t in range(length):
            held = min(max(new[row, t], old[row, t] - clip), old[row, t] + clip)
            total = total + 0.5 * max(
                (new[row, t] - returns[row, t]) ** 2, (held - returns[row, t]) ** 2
            )
    return total


@settings(max_examples=25)
@given(seed=st.integers(0, 9999), clip=st.sampled_from([0.05, 0.2, 0.5]))
def test_the_policy_loss_and_its_gradient_are_the_textbooks(seed: int, clip: float) -> None:
    old, advantages = drawn(seed) - 2, drawn(seed + 1)
    start = old + drawn(seed + 2, scale=0.4)
    ours, plain = (start.clone().requires_grad_() for _ in range(2))
    loss = policy_loss(ours, old, advantages, ragged(LENGTHS), clip)
    wanted = textbook_policy(plain, old, advantages, LENGTHS, clip)
    loss.total.backward()  # type: ignore[no-untyped-call]
    wanted.backward()
    assert loss.total.item() == pytest.approx(wanted.item(), rel=1e-12)
    assert torch.allclose(ours.grad, plain.grad, rtol=1e-10, atol=1e-12)  # type: ignore[arg-type]
    ratios = (start - old).exp()
    bound = ((ratios > 1 + clip) & (advantages > 0)) | ((ratios < 1 - clip) & (advantages < 0))
    assert loss.clipped.item() == (bound & ragged(LENGTHS)).sum().item()


@settings(max_examples=25)
@given(seed=st.integers(0, 9999), clip=st.sampled_from([0.05, 0.2, 1.0]))
def test_the_value_loss_and_its_gradient_are_the_textbooks(seed: int, clip: float) -> None:
    old, returns = drawn(seed), drawn(seed + 1)
    start = old + drawn(seed + 2, scale=0.5)
    ours, plain = (start.clone().requires_grad_() for _ in range(2))
    loss = value_loss(ours, old, returns, ragged(LENGTHS), clip)
    wanted = textbook_value(plain, old, returns, LENGTHS, clip)
    loss.total.backward()  # type: ignore[no-untyped-call]
    wanted.backward()
    assert loss.total.item() == pytest.approx(wanted.item(), rel=1e-12)
    assert torch.allclose(ours.grad, plain.grad, rtol=1e-10, atol=1e-12)  # type: ignore[arg-type]


@pytest.mark.parametrize("behind", [50.0, math.nan, -math.inf])
def test_losses_and_gradients_know_nothing_of_what_follows_an_end(behind: float) -> None:
    mask = ragged(LENGTHS)
    found = []
    for fill in (0.0, behind):
        tensors = [(drawn(n) - 1).masked_fill(~mask, fill) for n in range(6)]
        new, values = tensors[0].requires_grad_(), tensors[3].requires_grad_()
        policy = policy_loss(new, tensors[1], tensors[2], mask, 0.2)
        value = value_loss(values, tensors[4], tensors[5], mask, 0.2)
        (policy.total + value.total).backward()
        assert new.grad is not None
        assert values.grad is not None
        found.append(
            (policy.total, policy.clipped, value.total, value.clipped, new.grad, values.grad)
        )
    for clean, dirty in zip(*found, strict=True):
        assert torch.equal(clean, dirty)


def test_entropy_is_that_of_the_distribution() -> None:
    logits = torch.randn(2, 3, 11, dtype=torch.float64)
    wanted = torch.distributions.Categorical(logits=logits).entropy()
    assert torch.allclose(entropy_of(logits.log_softmax(-1)), wanted, rtol=1e-12)
    assert entropy_of(torch.zeros(1, 1, 8).log_softmax(-1)).item() == pytest.approx(math.log(8))


def test_tokens_that_cannot_be_sampled_add_no_entropy_and_no_gradient() -> None:
    logits = torch.tensor([[[0.0, 1.0, -math.inf]]], requires_grad=True)
    found = entropy_of(logits.log_softmax(-1))
    wanted = torch.distributions.Categorical(logits=torch.tensor([0.0, 1.0])).entropy()
    assert found.item() == pytest.approx(wanted.item(), rel=1e-6)
    found.sum().backward()
    assert logits.grad is not None
    assert logits.grad[0, 0, 2] == 0
    assert logits.grad.isfinite().all()


# --- the KL


@pytest.mark.parametrize(("kl", "error"), [(6.0, 0.0), (6.6, 0.1), (60.0, 0.2), (0.0, -0.2)])
def test_the_weight_of_the_kl_follows_the_papers_formula(kl: float, error: float) -> None:
    """Ziegler et al. 2019: beta <- beta (1 + K e), e held within 0.2; K is batch over horizon."""
    coefficient = KLCoefficient(0.15, target=6.0, horizon=10_000)
    coefficient.update(kl, completions=1000)
    assert coefficient.value == pytest.approx(0.15 * (1 + 0.1 * error), rel=1e-12)


def test_a_fixed_weight_stays() -> None:
    coefficient = KLCoefficient(0.15)
    coefficient.update(1e9, 10**9)
    assert coefficient.value == 0.15


class Alone:
    """The accelerator of one process."""

    num_processes = 1

    def reduce(self, tensor: torch.Tensor, how: str) -> torch.Tensor:
        return tensor.clone()


def figures_of(log_ratios: torch.Tensor, mask: torch.Tensor, parts: int) -> dict[str, float]:
    figures = Figures(Alone())
    figures.begin(mask.sum())
    zero = Loss(torch.zeros(()), torch.zeros((), dtype=torch.long))
    for rows in torch.arange(len(mask)).chunk(parts):
        figures.add(zero, zero, log_ratios[rows], mask[rows], torch.tensor(2.0))
    figures.end()
    figures.updated()
    return figures.means()


@pytest.mark.parametrize("parts", [1, 3])
def test_figures_are_means_a_token_whatever_the_micro_batches(parts: int) -> None:
    mask, moved = ragged(LENGTHS), drawn(8, scale=0.1).float()
    found = figures_of(moved.masked_fill(~mask, math.nan), mask, parts)
    ratio = moved[mask].exp()
    assert found["approx_kl"] == pytest.approx((ratio - 1 - ratio.log()).mean().item(), rel=1e-4)
    assert found["ratio_deviation"] == pytest.approx((ratio - 1).abs().max().item(), rel=1e-5)
    assert found["loss"] == pytest.approx(2.0 * parts / 11)
    assert found["updates"] == 1
