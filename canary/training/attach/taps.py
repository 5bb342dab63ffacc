"""Waits for the first optimizer of a process that imports torch, then calls back.

Loaded in every Python process of the user's command that imports torch. Standard library only, and
little of it: a process that makes no optimizer pays for two wrapped functions.
"""

from __future__ import annotations

import atexit
import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

OnOptimizer = Callable[[Any], None]
OnBackwards = Callable[[str], None]


class Taps:
    """Passes on what scripts call by names that they import early."""

    def __init__(
        self, first_optimizer: Callable[[Taps], None], backwards_alone: OnBackwards
    ) -> None:
        """`first_optimizer` is called once, with these taps, when an optimizer is made.
        `backwards_alone` is called if backward runs without one: at first with nothing, and with
        the count at the end of the process."""
        self._first: Callable[[Taps], None] | None = first_optimizer
        self._backwards_alone = backwards_alone
        self._backwards = 0
        self.optimizer_made: OnOptimizer | None = None
        """Gets each new optimizer."""

    def install(self, torch: ModuleType) -> None:
        """Wrap `Optimizer.__init__`, and `backward` until the first optimizer is made."""
        self._is_compiling = torch.compiler.is_compiling
        self._count_backwards(torch.autograd)
        optimizer = torch.optim.Optimizer
        optimizer.__init__ = self._around_init(optimizer.__init__)

    def _count_backwards(self, autograd: ModuleType) -> None:
        original = autograd.backward

        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> None:
            if self._first is not None and not self._is_compiling():
                self._backward_begins()
            original(*args, **kwargs)

        def end() -> None:
            if autograd.backward is backward:
                autograd.backward = original  # type: ignore[attr-defined]

        autograd.backward = backward  # type: ignore[attr-defined]
        self._end_counting = end

    def _backward_begins(self) -> None:
        self._backwards += 1
        if self._backwards == 1:
            self._backwards_alone("")
            atexit.register(self._process_ends)

    def _process_ends(self) -> None:
        if self._first is not None:
            self._backwards_alone(str(self._backwards))

    def _around_init(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            first, self._first = self._first, None
            if first is not None:
                self._end_counting()
                first(self)
            if self.optimizer_made is not None:
                self.optimizer_made(optimizer)

        return init
