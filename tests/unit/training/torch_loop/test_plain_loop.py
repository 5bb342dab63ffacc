"""What a plain loop is: the settings of its optimizers."""

from __future__ import annotations

import torch

from canary.training.torch_loop.plain_loop import settings_of


def optimizer(rate: float) -> torch.optim.Optimizer:
    return torch.optim.Adam([torch.nn.Parameter(torch.zeros(2))], lr=rate)


def test_settings_of_a_further_optimizer_have_its_place() -> None:
    found = settings_of([optimizer(1e-3), optimizer(1e-2)])
    assert (found["learning_rate"], found["learning_rate_2"]) == (1e-3, 1e-2)
    assert found["optim_2"] == "Adam"


def test_optimizers_alike_have_one_set_of_settings() -> None:
    """torchtune makes one for each parameter."""
    assert not any(name.endswith("_2") for name in settings_of([optimizer(1e-3)] * 3))
