"""What the guard of a level lets through, and what it names."""

from __future__ import annotations

import math
from typing import Any

import pytest

from canary.config.trainers import TRAINERS
from canary.ladder.guard import TOLERANCES, compare

LOSSES = [0.7, 0.6, 0.5]


def exact(losses: list[Any] | None = None, **rest: Any) -> Any:
    """A look's `exact`."""
    told: dict[str, Any] = {"losses": losses or LOSSES, "grad_norms": [2.0] * 3, "rl": {}}
    return {"trajectory": told | rest}


def moved(step: int, relative: float) -> Any:
    """As `exact`, one loss moved by a share of the largest."""
    losses = list(LOSSES)
    losses[step - 1] += relative * max(LOSSES)
    return exact(losses)


def test_equal_trajectories_hold() -> None:
    found = compare(exact(), exact(), "sft", "float32")
    assert found.holds
    assert found.signals == 2
    assert found.worst is not None
    assert found.worst.relative == 0


@pytest.mark.parametrize("rounding", ["float32", "bfloat16"])
def test_a_difference_is_judged_by_what_the_switches_may_round(rounding: Any) -> None:
    allowed = TOLERANCES[rounding].loss
    assert compare(exact(), moved(2, 0.9 * allowed), "sft", rounding).holds
    assert not compare(exact(), moved(2, 1.1 * allowed), "sft", rounding).holds


def test_the_first_signal_out_of_tolerance_is_named_with_both_values() -> None:
    level = exact([0.7, 0.61, 0.9], grad_norms=[2.0, 2.0, 3.0])
    found = compare(exact(), level, "sft", "float32")
    assert found.first is not None
    assert found.first.words == "loss 0.6 -> 0.61 at step 2"
    assert "tolerance 1e-05 in float32" in found.words


def test_metrics_of_the_trainer_are_guarded_too() -> None:
    expected = exact(rl={"logps/chosen": [-30.0, -31.0, -32.0]})
    level = exact(rl={"logps/chosen": [-30.0, -31.0, -33.0]})
    assert "logps/chosen" in TRAINERS["dpo"].metrics
    found = compare(expected, level, "dpo", "float32")
    assert found.first is not None
    assert found.first.signal == "logps/chosen"
    assert compare(expected, level, "sft", "float32").holds


def test_rounding_of_a_loss_near_zero_is_none_of_its_own_size() -> None:
    """The first policy loss of a group is 0 but for rounding."""
    assert compare(exact([1e-8, 2e-8, 0.0]), exact([0.0, 3e-8, 1e-8]), "grpo", "float32").holds


def test_a_loss_that_is_no_number_at_one_of_both_breaks_the_guard() -> None:
    found = compare(exact(), exact([0.7, math.nan, 0.5]), "sft", "bfloat16")
    assert found.first is not None
    assert math.isinf(found.first.relative)
    assert compare(exact([0.7, math.nan, 0.5]), exact([0.7, math.nan, 0.5]), "sft", "float32").holds
    assert not compare(exact([0.7, math.nan, 0.5]), exact([0.7, 0.6, 0.5]), "sft", "bfloat16").holds


def test_a_value_that_only_one_of_both_told_breaks_the_guard() -> None:
    assert not compare(exact(), exact([0.7, None, 0.5]), "sft", "bfloat16").holds


def test_steps_that_are_missing_are_no_agreement() -> None:
    found = compare(exact(), exact([0.7, 0.6]), "sft", "float32")
    assert not found.holds
    assert found.problem == "loss has a different number of steps"


def test_a_baseline_without_losses_guards_nothing_and_says_so() -> None:
    found = compare({}, exact(), "sft", "float32")
    assert not found.holds
    assert "has no loss" in found.words


def test_another_optimizer_shows_in_the_size_of_its_first_update() -> None:
    """AdamW's eps moves it by 8%, and the losses of the first steps by less than 1e-4."""
    sizes = [exact() | {"first_update": {"delta_norm": size}} for size in (0.3153276, 0.2903481)]
    assert compare(sizes[0], sizes[0], "sft", "float32").holds
    found = compare(sizes[0], sizes[1], "sft", "float32").first
    assert found is not None
    assert found.words == "first update 0.315328 -> 0.290348 at step 1"


def test_an_optimizer_whose_updates_do_not_show_is_said() -> None:
    still, moving = exact(learning_rates=[0.0, 0.0, 1e-3]), exact(learning_rates=[0.0, 1e-3, 2e-3])
    assert "not checked: the optimizer" in compare(still, still, "sft", "float32").words
    assert "optimizer" not in compare(moving, moving, "sft", "float32").words


def test_a_guard_says_that_it_does_not_see_what_is_sampled() -> None:
    assert "not checked: generation" in compare(exact(), exact(), "grpo", "float32").words
    assert "generation" not in compare(exact(), exact(), "sft", "float32").words
