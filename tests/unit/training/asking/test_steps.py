"""Looks that begin and end within a step of an optimizer, as with a closure."""

from __future__ import annotations

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from canary.training.asking.observer import EARLY, Asking


def test_a_look_may_begin_and_end_within_a_step() -> None:
    EARLY.begin()
    asking = Asking(None, again=False)
    optimizer = torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1)
    handle = register_optimizer_step_pre_hook(lambda *_: asking.begin())
    try:
        optimizer.step()
    finally:
        handle.remove()
    handle = register_optimizer_step_pre_hook(lambda *_: asking.end())
    try:
        optimizer.step()
    finally:
        handle.remove()
        asking.end()
        EARLY.end()
