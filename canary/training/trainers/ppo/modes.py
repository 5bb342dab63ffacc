"""The one policy that PPO samples from, judges and trains: nothing random in it in any mode."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.dropout import _DropoutNd


def without_dropout(model: nn.Module) -> float:
    """Switches off every dropout, that of adapters too; returns the largest there was.

    With dropout the first ratio would not be 1: an update would learn from the masks that the
    rollout had drawn, and the clipping would hold some of them back. Models of transformers have it
    as modules, and as rates by many names, of modules or of their config, which they call
    `torch.nn.functional.dropout` with.
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
    """Attributes of a module or a config that are rates of dropout."""
    held = getattr(owner, "__dict__", {})
    return [name for name, value in held.items() if "drop" in name and isinstance(value, float)]


def evaluate(model: nn.Module) -> None:
    """Evaluation mode, but for 4-bit layers on a CPU with bfloat16 instructions: bitsandbytes would
    pack their weights anew, for kernels that compute something else than those of training."""
    model.train(False)
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.training = True
