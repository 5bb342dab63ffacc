"""The hook that reads the gradient of what a model said."""

from __future__ import annotations

import io

import torch

from canary.training.asking.observer import _hook


def test_a_gradient_is_read_where_the_graph_made_it_and_no_hook_is_saved() -> None:
    seen: list[torch.Tensor] = []
    weight = torch.ones(2, 4, requires_grad=True)
    said, other = (2 * weight).split(2, dim=1)
    _hook(said, seen.append)
    _hook(other, seen.append)
    torch.save(said, io.BytesIO())
    assert not said._backward_hooks
    said.sum().backward()
    assert [one.tolist() for one in seen] == [torch.ones(2, 2).tolist()]


def test_what_is_no_result_of_an_operation_is_hooked_itself() -> None:
    seen: list[torch.Tensor] = []
    leaf = torch.ones(2, requires_grad=True)
    _hook(leaf, seen.append)
    leaf.sum().backward()
    assert len(seen) == 1
