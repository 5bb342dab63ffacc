"""Modes of PPO's policy: without dropout, so that sampling and training use the same policy."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.dropout import _DropoutNd


def without_dropout(model: nn.Module) -> float:
    """Switch off all dropout, also that of adapters; return the largest rate found.

    With dropout the first ratio would not be 1: updates would learn from the random masks, and
    clipping would stop some of them. Models of transformers have dropout modules. They also pass
    rates, under many names in modules or configs, to `torch.nn.functional.dropout`.
    """
    found = [0.0]
    for module in model.modules():
        if isinstance(module, _DropoutNd):
            found.append(module.p)
            module.p = 0.0
        for owner in (module, getattr(module, "config", None)):
            for name in rates(owner):
                found.append(getattr(owner, name))
                setattr(owner, name, 0.0)
    return max(found)


def rates(owner: object) -> list[str]:
    """Return the names of a module's or config's attributes that are dropout rates."""
    values = getattr(owner, "__dict__", {})
    return [name for name, value in values.items() if "drop" in name and isinstance(value, float)]


def evaluate(model: nn.Module) -> None:
    """Set evaluation mode, except for 4-bit layers on a CPU with bfloat16 instructions: there
    bitsandbytes would repack the weights for kernels that compute other values than training."""
    model.train(False)
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.training = True
