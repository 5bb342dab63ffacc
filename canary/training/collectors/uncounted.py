"""The canary's operators, which are not part of the training's work."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import _C
from torch.utils._python_dispatch import _disable_current_modes


@contextlib.contextmanager
def uncounted() -> Iterator[None]:
    """Hide the operators inside, or in the decorated function, from all modes: those that count
    them, and a default device of the user's."""
    modes = [_C._pop_torch_function_stack() for _ in range(_C._len_torch_function_stack())]
    try:
        with _disable_current_modes():
            yield
    finally:
        for mode in reversed(modes):
            _C._push_on_torch_function_stack(mode)
