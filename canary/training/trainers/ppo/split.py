"""Split a rollout into mini-batches, one per update, and these into micro-batches."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from canary.training.trainers.ppo.rollout import Rollout


@dataclass(frozen=True)
class Splitter:
    """Sizes are in completions. `bucketed`: sort the rows of a mini-batch by length, so that its
    micro-batches have little padding; the mini-batch stays the same."""

    mini_batch: int
    micro_batch: int
    bucketed: bool = False

    def of(self, rollout: Rollout, order: torch.Tensor | None = None) -> list[list[torch.Tensor]]:
        """Return each mini-batch's rows per micro-batch, in the rollout's order or in `order`."""
        device = rollout.completion_ids.device
        rows = torch.arange(len(rollout)) if order is None else order
        lengths = rollout.attention_mask.sum(dim=1).cpu() if self.bucketed else None
        found = []
        for mini in rows.split(self.mini_batch):
            if lengths is not None:
                mini = mini[lengths[mini].argsort(descending=True, stable=True)]
            found.append([micro.to(device) for micro in mini.split(self.micro_batch)])
        return found
