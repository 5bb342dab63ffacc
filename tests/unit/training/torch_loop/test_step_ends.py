"""When a step of a plain loop ends: which optimizers make it, and what they were given."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Optimizer

from canary.training.recorder.collector import around_closure
from canary.training.torch_loop.recording import loss_tensors
from canary.training.torch_loop.step_optimizers import StepOptimizers


def optimizer(*values: torch.Tensor) -> Optimizer:
    return SGD(values, lr=0.1)


@pytest.fixture
def model() -> nn.Linear:
    return nn.Linear(4, 2)


def test_all_optimizers_of_one_model_make_its_step(model: nn.Linear) -> None:
    """Muon beside AdamW; the discriminator's optimizer trains another model."""
    large, small, foreign = (
        *(optimizer(model.weight), optimizer(model.bias)),
        optimizer(*nn.Linear(2, 1).parameters()),
    )
    step = StepOptimizers([large, foreign, small], model.parameters())
    assert (step.own, step.size) == ((large, small), 8)
    assert not step.trains(foreign)
    for one, over in ((large, False), (small, True)):
        step.stepped(one)
        assert step.all_stepped is over
    step.step_ended()
    assert not step.any_stepped


def test_one_that_stepped_less_often_is_expected_no_longer(model: nn.Linear) -> None:
    often, seldom = optimizer(model.weight), optimizer(model.bias)
    step = StepOptimizers([often, seldom], model.parameters())
    step.stepped(often)
    assert step.primary_stepped
    step.expect_these()
    step.step_ended()
    step.stepped(often)
    assert step.all_stepped
    assert step.trains(seldom)


def test_one_that_steps_after_a_backward_of_its_own_is_left_out(model: nn.Linear) -> None:
    """The two losses of a GAN in one module: before the primary's step, or after it."""
    primary, other = optimizer(model.weight), optimizer(model.bias)
    late = StepOptimizers([primary, other], model.parameters())
    late.stepped(primary)
    assert late.leave_out(late=True) == 1
    early = StepOptimizers([primary, other], model.parameters())
    early.stepped(other)
    assert not early.primary_stepped
    assert early.leave_out(late=False) == 1
    early.step_ended()
    for step in (late, early):
        assert not step.trains(other)
        step.stepped(primary)
        assert step.all_stepped


@pytest.mark.parametrize("named", [True, False])
def test_a_closure_is_watched_where_it_was_given(named: bool) -> None:
    log: list[str] = []

    def closure() -> float:
        log.append("loss")
        return 0.5

    args: Any = ("optimizer",) if named else ("optimizer", closure, 7)
    kwargs: Any = {"closure": closure} if named else {}
    found = around_closure(args, kwargs, lambda: log.append("begins"), lambda: log.append("ended"))
    assert found is not None
    args, kwargs = found
    watched: Any = kwargs["closure"] if named else args[1]
    assert watched() == 0.5
    assert log == ["begins", "loss", "ended"]
    assert (args[0], args[2:], [*kwargs]) == (
        *("optimizer", () if named else (7,)),
        ["closure"] if named else [],
    )


@pytest.mark.parametrize("args", [(), ("optimizer",), ("optimizer", 3)])
def test_a_step_without_a_closure_has_none(args: tuple[Any, ...]) -> None:
    assert around_closure(args, {"closure": None}, bool, bool) is None


def test_only_single_numbers_are_losses() -> None:
    one, several = torch.tensor(1.0), torch.ones(3)
    assert loss_tensors(one) == [one]
    assert loss_tensors([one, several, None]) == [one]
    assert loss_tensors(None) == []


@pytest.mark.parametrize(("first", "reports"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_an_optimizer_that_wraps_another_is_the_same_one(
    model: nn.Linear, first: int, reports: int
) -> None:
    """Sharpness-aware minimisation: its two steps end with that of the base optimizer."""
    both = [optimizer(*model.parameters()) for _ in range(2)]
    both[0].base_optimizer = both[1]  # type: ignore[attr-defined]
    step = StepOptimizers([both[first], both[1 - first]], model.parameters())
    step.stepped(both[reports])
    assert step.all_stepped
    assert step.primary_stepped
