"""Methods wrapped on one instance, and optimizers hooked in one process, until they are let go."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch.optim import optimizer as torch_optimizer


class Wrapping:
    """What a probe has put around the calls of others."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def wrap(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        """Calls `around` with the method and its arguments instead of the method; nothing where
        there is no such method."""
        original = getattr(owner, name, None)
        if original is None:
            return
        own = vars(owner).get(name)

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return around(original, *args, **kwargs)

        setattr(owner, name, wrapper)
        self._undo.append(
            functools.partial(delattr, owner, name)
            if own is None
            else functools.partial(setattr, owner, name, own)
        )

    def hook_updates(self, begins: Callable[..., None], ended: Callable[..., None]) -> None:
        """Calls these before and after the step of any torch optimizer of this process."""
        before = torch_optimizer.register_optimizer_step_pre_hook(begins)
        after = torch_optimizer.register_optimizer_step_post_hook(ended)
        self._undo += [before.remove, after.remove]

    def undo(self) -> None:
        """Leaves everything as it was."""
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()
