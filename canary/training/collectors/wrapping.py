"""Wraps methods of an instance, and hooks optimizers of this process, until undone; knows whether a
module is compiled, although the canary may watch it by the same attribute."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.optim import optimizer as torch_optimizer


class Wrapping:
    """Wrapped methods and hooks, with the means to undo them."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def wrap(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        """Call `around` with the method and its arguments instead of the method, if it exists."""
        original = getattr(owner, name, None)
        if original is None:
            return
        replaced = vars(owner).get(name)

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return around(original, *args, **kwargs)

        def put_back() -> None:
            if vars(owner).get(name) is not wrapper:
                return  # the training has replaced it since
            if replaced is None:
                delattr(owner, name)
            else:
                setattr(owner, name, replaced)

        setattr(owner, name, wrapper)
        self._undo.append(put_back)

    def hook_updates(self, begin: Callable[..., None], end: Callable[..., None]) -> None:
        """Call these before and after each step of any torch optimizer in this process."""
        before = torch_optimizer.register_optimizer_step_pre_hook(begin)
        after = torch_optimizer.register_optimizer_step_post_hook(end)
        self._undo += [before.remove, after.remove]

    def undo(self) -> None:
        """Remove all wrapping and hooks."""
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()


SLOT = "_compiled_call_impl"
"""What `nn.Module` calls in place of its `forward`, if an instance has it."""
BEFORE = "_canary_before"
"""What a watcher in this slot has taken the place of."""


def is_compiled(module: nn.Module) -> bool:
    """Whether a module is compiled, watched or not."""
    slot = vars(module).get(SLOT)
    return hasattr(module, "_orig_mod") or getattr(slot, BEFORE, slot) is not None
