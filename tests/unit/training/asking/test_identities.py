"""The wrong sign of a KL term is found, and advantages of other groups."""

from __future__ import annotations

import pytest
import torch

from tests.unit.training.asking.online import (
    GRPO,
    Advantages,
    Online,
    ReinforcePlusPlus,
    by_batch,
    by_group,
)


def test_a_kl_term_with_the_right_sign_holds() -> None:
    found = Online(kl=0.2).run()["kl_sign"]
    assert found["status"] == "holds", found
    assert "pulls towards the reference" in found["words"]


@pytest.mark.parametrize("by_length", [True, False])
def test_a_kl_term_with_the_wrong_sign_is_broken(by_length: bool) -> None:
    found = Online(kl=-0.2, by_length=by_length).run()["kl_sign"]
    assert found["status"] == "broken", found
    assert "pushes away from the reference" in found["words"]


def only_better(rewards: torch.Tensor) -> torch.Tensor:
    return by_group(rewards).clamp_min(0)


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
    found = made.run()
    assert found["kl_sign"]["status"] != "broken", found
    assert found["first_ratio"]["status"] != "broken", found


def centred(rewards: torch.Tensor) -> torch.Tensor:
    """As Dr. GRPO does."""
    return rewards - rewards.mean(1, keepdim=True)


def left_out(rewards: torch.Tensor) -> torch.Tensor:
    """As RLOO does: the baseline is the mean of the others."""
    others = (rewards.sum(1, keepdim=True) - rewards) / (rewards.shape[1] - 1)
    return rewards - others


def one_group_equal(rewards: torch.Tensor) -> torch.Tensor:
    return by_group(torch.cat([rewards[:1].mean().expand_as(rewards[:1]), rewards[1:]]))


@pytest.mark.parametrize("advantages", [by_group, centred, left_out, one_group_equal])
def test_advantages_of_groups_hold(advantages: Advantages) -> None:
    found = GRPO(advantages).run()["group_advantages"]
    assert found["status"] == "holds", found
    assert found["words"] == "advantages add up to 0 in each group of 3 updates"


def test_a_kl_term_and_a_second_pass_do_not_disturb_the_groups() -> None:
    for made in (GRPO(kl=0.2), GRPO(passes=2)):
        assert made.run()["group_advantages"]["status"] == "holds"


def test_advantages_of_the_batch_are_broken_by_that_name() -> None:
    found = GRPO(by_batch).run()["group_advantages"]
    assert found["status"] == "broken", found
    assert "the training is named GRPO (class GRPO), but advantages" in found["words"]


@pytest.mark.parametrize("kind", [Online, ReinforcePlusPlus])
def test_advantages_of_the_batch_are_right_elsewhere(kind: type[Online]) -> None:
    found = kind(by_batch).run()["group_advantages"]
    assert found["status"] == "not asked", found


def half_are_right(rewards: torch.Tensor) -> torch.Tensor:
    return by_group((rewards.argsort(1).argsort(1) > 1).float())


def test_groups_that_are_spread_over_updates_are_not_judged() -> None:
    """Half of two groups add up to 0 over an update by chance."""
    found = GRPO(half_are_right, spread=True, rounds=3).run()["group_advantages"]
    assert found["status"] == "not asked", found


def test_grpo_whose_groups_say_nothing_is_not_called_another_training() -> None:
    found = GRPO(torch.zeros_like).run()["group_advantages"]
    assert found["status"] == "not asked", found
    assert found["words"] == "no update has several prompts with unequal advantages each"
