"""Figures of all ranks from those of each, and when their gradients are exchanged."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from canary.workload.ppo.objective import Moments, kept, moments


def moments_of_ranks(values: torch.Tensor, mask: torch.Tensor, accelerator: Any) -> Moments:
    """Mean and variance over the masked tokens of every rank."""
    if accelerator.num_processes == 1:
        return moments(values, mask)
    sums = torch.stack([kept(values, mask).sum(), mask.sum().to(values.dtype)])
    total, count = accelerator.reduce(sums, "sum")
    mean = total / count
    squares = accelerator.reduce(kept(values - mean, mask).square().sum(), "sum")
    return Moments(mean, squares / (count - 1).clamp(min=1))


def every_rank(metrics: dict[str, float], accelerator: Any) -> dict[str, float]:
    """The mean of each metric over the ranks, which have as many completions each."""
    if accelerator.num_processes == 1:
        return metrics
    names = sorted(metrics)
    told = torch.tensor([metrics[name] for name in names], device=accelerator.device)
    return dict(zip(names, accelerator.reduce(told, "mean").tolist(), strict=True))


def synchronised(accelerator: Any, model: Any, last: bool) -> AbstractContextManager[Any]:
    """Gradients are exchanged between ranks with the last micro-batch alone."""
    if last:
        return nullcontext()
    found: AbstractContextManager[Any] = accelerator.no_sync(model)
    return found
