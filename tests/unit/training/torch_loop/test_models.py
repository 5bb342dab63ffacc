"""Which modules a loop trains, found by the parameters of its optimizer."""

from __future__ import annotations

import torch
from torch import nn

from canary.training.exact.parameters import parameters_of
from canary.training.torch_loop.step_optimizers import (
    Several,
    as_one,
    holds,
    outermost_modules,
    size_of,
    without_wrappers,
)


class Wrapped(nn.Module):
    """As DistributedDataParallel holds the user's module."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


def optimizer_of(*modules: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([value for one in modules for value in one.parameters()], lr=0.1)


def test_the_outermost_modules_hold_the_parameters_in_the_optimizers_order() -> None:
    one, other, unused = nn.Sequential(nn.Linear(2, 2)), nn.Linear(3, 3), nn.Linear(4, 4)
    optimizer = optimizer_of(other, one)
    assert outermost_modules(parameters_of(optimizer)) == [other, one]
    assert size_of(optimizer) == 12 + 6
    assert holds(one, optimizer)
    assert not holds(unused, optimizer)


def test_names_of_parameters_are_those_without_wrappers() -> None:
    plain = nn.Linear(2, 2)
    assert without_wrappers(Wrapped(plain)) is plain
    both = Wrapped(plain)
    both.head = nn.Linear(2, 2)
    assert without_wrappers(both) is both


def test_several_modules_count_as_one_model() -> None:
    one, other = nn.Linear(2, 2), nn.Linear(3, 3)
    made = as_one([one, other])
    assert isinstance(made, Several)
    assert [name for name, _ in made.named_parameters()] == [
        *("Linear.weight", "Linear.bias", "Linear1.weight", "Linear1.bias")
    ]
    assert as_one([one]) is one
    assert as_one([]) is None
