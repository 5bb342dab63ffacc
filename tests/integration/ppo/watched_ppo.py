"""PPO trainers of a few steps, and what their loop tells while it trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from canary.training.loops.train_override import Unwatched
from canary.training.trainers import build_trainer
from canary.training.trainers.ppo.trainer import PPOTrainer
from tests.integration.trainers.test_workload import make_spec

Tensors = dict[str, torch.Tensor]


class Listener(Unwatched):
    """Keeps what it is told, step by step."""

    def __init__(self) -> None:
        self.rollouts: list[Tensors] = []
        self.losses: list[float] = []
        self.steps: list[dict[str, float]] = []

    def rollout(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self.rollouts.append({name: value.clone() for name, value in tensors.items()})

    def loss(self, loss: torch.Tensor) -> None:
        self.losses.append(float(loss))

    def metrics(self, found: Mapping[str, float]) -> None:
        self.steps.append(dict(found))


def ppo_trainer(folder: Path, *, max_steps: int = 1, **changes: Any) -> PPOTrainer:
    """A trainer of four completions a rollout, each of up to 8 tokens, that updates once."""
    fields: dict[str, Any] = {"batch_size": 4, "dataset_size": 64, **changes}
    fields["ppo"] = {"ppo_epochs": 1, **changes.get("ppo", {})}
    trainer = build_trainer(make_spec(folder, "ppo", max_steps, **fields))
    assert isinstance(trainer, PPOTrainer)
    return trainer


def trained(
    folder: Path, before: Callable[[PPOTrainer], None] | None = None, **changes: Any
) -> tuple[PPOTrainer, Listener]:
    """A trainer that has trained, and what was heard of it; `before` may change it first."""
    trainer = ppo_trainer(folder, **changes)
    listener = Listener()
    trainer.watch = listener
    if before is not None:
        before(trainer)
    trainer.train()
    return trainer, listener


def weights(trainer: PPOTrainer) -> Tensors:
    """All parameters, copied."""
    return {name: value.detach().clone() for name, value in trainer.model.named_parameters()}


def farthest(one: Tensors, other: Tensors) -> float:
    """The largest distance between two sets of the same tensors."""
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)
