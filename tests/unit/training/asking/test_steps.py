"""Looks that begin and end within a step of an optimizer, as with a closure."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from canary.training.asking.observer import EARLY, Asking


def step_with(call: Callable[[], None]) -> None:
    """Make a step of an optimizer in whose first hook something happens."""
    optimizer = torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1)
    hooks = [lambda *_: call(), lambda *_: None]
    handles = [register_optimizer_step_pre_hook(hook) for hook in hooks]
    try:
        optimizer.step()
    finally:
        for handle in handles:
            handle.remove()


def test_a_look_may_begin_and_end_within_a_step() -> None:
    EARLY.begin()
    asking = Asking(None, again=False)
    try:
        step_with(EARLY.end)
        step_with(asking.begin)
        step_with(asking.end)
    finally:
        asking.end()
        EARLY.end()
