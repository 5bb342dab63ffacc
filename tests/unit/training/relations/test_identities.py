"""`identities` finds the wrong sign of a KL term, and advantages of other groups."""

from __future__ import annotations

import pytest
import torch

from canary.relations.relation import Outcome
from tests.unit.training.relations.online import (
    GRPO,
    Advantages,
    Online,
    ReinforcePlusPlus,
    by_batch,
    by_group,
)


def asked(made: Online) -> Outcome:
    return made.run()["identities"]


def test_a_kl_term_with_the_right_sign_holds() -> None:
    found = asked(Online(kl=0.2))
    assert found["status"] == "holds", found
    assert "the KL term pulls towards the reference" in found["message"]


@pytest.mark.spread(1)
@pytest.mark.parametrize("by_length", [True, False])
def test_a_kl_term_with_the_wrong_sign_is_broken(by_length: bool) -> None:
    found = asked(Online(kl=-0.2, by_length=by_length))
    assert found["status"] == "broken", found
    assert "the KL term pushes away from the reference" in found["message"]


def only_better(rewards: torch.Tensor) -> torch.Tensor:
    return by_group(rewards).clamp_min(0)


@pytest.mark.spread(1)
@pytest.mark.parametrize(
    "made",
    [
        Online(passes=2),
        Online(passes=3, advantages=only_better, rounds=1, rate=5e-4),
        Online(in_reward=0.2),
    ],
    ids=["a ratio", "a ratio that only raises", "rewards"],
)
def test_ratios_and_kl_in_rewards_are_no_wrong_sign(made: Online) -> None:
    found = asked(made)
    assert found["status"] != "broken", found


def centred(rewards: torch.Tensor) -> torch.Tensor:
    """As Dr. GRPO does."""
    return rewards - rewards.mean(1, keepdim=True)


def left_out(rewards: torch.Tensor) -> torch.Tensor:
    """As RLOO does: the baseline is the mean of the others."""
    others = (rewards.sum(1, keepdim=True) - rewards) / (rewards.shape[1] - 1)
    return rewards - others


def one_group_equal(rewards: torch.Tensor) -> torch.Tensor:
    return by_group(torch.cat([rewards[:1].mean().expand_as(rewards[:1]), rewards[1:]]))


@pytest.mark.spread(1)
@pytest.mark.parametrize("advantages", [by_group, centred, left_out, one_group_equal])
def test_advantages_of_groups_hold(
    advantages: Advantages,
) -> None:
    found = asked(GRPO(advantages))
    assert found["status"] == "holds", found
    assert found["message"] == "advantages add up to 0 in each group of 4 updates"


def test_a_kl_term_and_a_second_pass_do_not_disturb_the_groups() -> None:
    assert asked(GRPO(kl=0.2))["status"] == "holds"
    assert asked(GRPO(passes=2))["status"] == "holds"


@pytest.mark.spread(1)
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_advantages_of_the_batch_are_broken_by_that_name(temperature: float) -> None:
    found = asked(GRPO(by_batch, temperature=temperature))
    assert found["status"] == "broken", found
    assert "the training calls itself GRPO (class GRPO), but advantages" in found["message"]


@pytest.mark.spread(1)
@pytest.mark.parametrize("kind", [Online, ReinforcePlusPlus])
def test_advantages_of_the_batch_are_right_elsewhere(kind: type[Online]) -> None:
    found = asked(kind(by_batch))
    assert found["status"] == "not applicable", found


def half_are_right(rewards: torch.Tensor) -> torch.Tensor:
    return by_group((rewards.argsort(1).argsort(1) > 1).float())


def test_groups_that_are_spread_over_updates_are_not_judged() -> None:
    """Half of two groups add up to 0 over an update by chance."""
    found = asked(GRPO(half_are_right, spread=True, rounds=3))
    assert found["status"] == "not applicable", found
