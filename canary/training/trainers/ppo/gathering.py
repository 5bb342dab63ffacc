"""Figures of all ranks from those of each, and when their gradients are exchanged."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from accelerate.utils import gather

from canary.training.trainers.ppo.objective import Moments, kept, moments


def moments_of_ranks(values: torch.Tensor, mask: torch.Tensor, accelerator: Any) -> Moments:
    """Mean and variance over the masked tokens of every rank."""
    if accelerator.num_processes == 1:
        return moments(values, mask)
    sums = torch.stack([kept(values, mask).sum(), mask.sum().to(values.dtype)])
    total, count = accelerator.reduce(sums, "sum")
    mean = total / count
    squares = accelerator.reduce(kept(values - mean, mask).square().sum(), "sum")
    return Moments(mean, squares / (count - 1).clamp(min=1))


def every_row(columns: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Each column, (rows,), with the rows of every rank, which has as many as any other: float64 on
    the host, gathered all together."""
    own = torch.stack([column.float() for column in columns.values()], dim=1)
    table = gather(own).cpu().double()
    return dict(zip(columns, table.unbind(dim=1), strict=True))


def largest(value: torch.Tensor) -> torch.Tensor:
    """Of a number a rank; NaN where one is."""
    found: torch.Tensor = gather(value.reshape(1)).max()
    return found


def synchronised(accelerator: Any, model: Any, last: bool) -> AbstractContextManager[Any]:
    """Gradients are exchanged between ranks with the last micro-batch alone."""
    if last:
        return nullcontext()
    found: AbstractContextManager[Any] = accelerator.no_sync(model)
    return found
