"""Whether a module is compiled, although the canary may watch it by the same attribute."""

from __future__ import annotations

from torch import nn

SLOT = "_compiled_call_impl"
"""What `nn.Module` calls in place of its `forward`, if an instance has it."""
BEFORE = "_canary_before"
"""What a watcher in this slot has taken the place of."""


def is_compiled(module: nn.Module) -> bool:
    """Whether a module is compiled, watched or not."""
    slot = vars(module).get(SLOT)
    return hasattr(module, "_orig_mod") or getattr(slot, BEFORE, slot) is not None
