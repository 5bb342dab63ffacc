"""The learning rates that a trainer's arguments ask for, computed apart from its own scheduler."""

from __future__ import annotations

from typing import Any

import torch

UNFORESEEN = ("reduce_lr_on_plateau", "greedy")
"""Schedulers whose rates depend on the loss."""


def wanted_rates(trainer: Any, updates: int, rate: float) -> list[float] | None:
    """Return the learning rate of each update, from the first one of the optimizer; None if the
    training brings its own scheduler. A least rate of the schedule is no factor of the first."""
    if not getattr(trainer, "_created_lr_scheduler", False):
        return None
    arguments = trainer.args
    kind = str(getattr(arguments.lr_scheduler_type, "value", arguments.lr_scheduler_type))
    total = getattr(trainer.state, "max_steps", 0)
    if kind in UNFORESEEN or total < 1:
        return None
    from transformers import get_scheduler

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=rate)
    scheduler = get_scheduler(
        arguments.lr_scheduler_type,
        optimizer=optimizer,
        num_warmup_steps=arguments.get_warmup_steps(total),
        num_training_steps=total,
        scheduler_specific_kwargs=getattr(arguments, "lr_scheduler_kwargs", None),
    )
    rates = []
    for _ in range(updates):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step()
    return rates


def rate_of(trainer: Any, optimizer: torch.optim.Optimizer, brought: bool) -> float:
    """Return the learning rate of the arguments; of an optimizer that the training `brought`, or of
    groups with rates of their own, the first rate of the optimizer."""
    group = optimizer.param_groups[0]
    own = float(group.get("initial_lr", group["lr"]))
    rates = {float(one.get("initial_lr", one["lr"])) for one in optimizer.param_groups}
    return own if brought or len(rates) > 1 else float(trainer.args.learning_rate)
