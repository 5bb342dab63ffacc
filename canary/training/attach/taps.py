"""Waits for the first optimizer of a process that imports torch, then calls back.

Loaded in every Python process of the user's command that imports torch. Standard library only, and
little of it: a process that makes no optimizer pays for two wrapped functions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

OnOptimizer = Callable[[Any], None]
OnClip = Callable[[Any, Any, Any], None]


class Taps:
    """Passes on what scripts call by names that they import early."""

    def __init__(self, first_optimizer: Callable[[Taps], None]) -> None:
        """`first_optimizer` is called once, with these taps, when an optimizer is made."""
        self._first: Callable[[Taps], None] | None = first_optimizer
        self.optimizer_made: OnOptimizer | None = None
        """Gets each new optimizer."""
        self.clipped: OnClip | None = None
        """Gets the parameters of a clip, its limit and the norm before it."""

    def install(self, torch: ModuleType) -> None:
        """Wrap `Optimizer.__init__` and `clip_grad_norm_`."""
        self._is_compiling = torch.compiler.is_compiling
        optimizer = torch.optim.Optimizer
        optimizer.__init__ = self._around_init(optimizer.__init__)
        clipping = torch.nn.utils.clip_grad
        wrapped = self._around_clip(clipping.clip_grad_norm_)
        clipping.clip_grad_norm_ = torch.nn.utils.clip_grad_norm_ = wrapped

    def _around_init(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            first, self._first = self._first, None
            if first is not None:
                first(self)
            if self.optimizer_made is not None:
                self.optimizer_made(optimizer)

        return init

    def _around_clip(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def clip(parameters: Any, max_norm: Any, *args: Any, **kwargs: Any) -> Any:
            clipped = self.clipped
            if clipped is None or self._is_compiling():
                return original(parameters, max_norm, *args, **kwargs)
            if not hasattr(parameters, "grad"):
                parameters = [*parameters]  # a generator can be read once
            norm = original(parameters, max_norm, *args, **kwargs)
            clipped(parameters, max_norm, norm)
            return norm

        return clip


def begin(torch: ModuleType, first_optimizer: Callable[[Taps], None]) -> None:
    """Install the taps in the freshly loaded `torch`."""
    Taps(first_optimizer).install(torch)
