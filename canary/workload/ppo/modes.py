"""The one policy that PPO samples from, judges and trains: nothing random in it in any mode."""

from __future__ import annotations

from torch import nn

FUNCTIONAL = ("activation_dropout", "attention_dropout", "attn_dropout", "dropout", "layerdrop")
"""Numbers by which modules of transformers call `torch.nn.functional.dropout`."""


def without_dropout(model: nn.Module) -> float:
    """Switches off every dropout, that of adapters too; returns the largest there was.

    With dropout the first ratio would not be 1: an update would learn from the masks that the
    rollout had drawn, and the clipping would hold some of them back.
    """
    found = [0.0]
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            found.append(module.p)
            module.p = 0.0
        for name in FUNCTIONAL:
            if isinstance(getattr(module, name, None), float):
                found.append(getattr(module, name))
                setattr(module, name, 0.0)
    return max(found)


def evaluate(model: nn.Module) -> None:
    """Evaluation mode, but for 4-bit layers on a CPU with bfloat16 instructions: bitsandbytes would
    pack their weights anew, for kernels that compute something else than those of training."""
    model.train(False)
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.training = True
