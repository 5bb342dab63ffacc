"""What a loop hands over, in the form that the probes read: scalars."""

from __future__ import annotations

import math
from typing import Any

import torch

from canary.errors import UsageError


def scalar(value: Any, name: str) -> torch.Tensor | float:
    """One number, left on its device where it is a tensor.

    Raises:
        UsageError: it is none.
    """
    if isinstance(value, torch.Tensor):
        if value.numel() == 1:
            return value.detach().reshape(())
        text = f"a tensor of shape {tuple(value.shape)}"
    else:
        try:
            return float(value)
        except (TypeError, ValueError):
            text = type(value).__name__
    raise UsageError(
        f"{name} takes one number, got {text}", "give its mean, or a tensor of one element"
    )


def mean(values: list[float]) -> float | None:
    """Of a step's micro-batches; None where there was none."""
    return math.fsum(values) / len(values) if values else None
