"""What the canary does inside a training: it is not counted, and its errors end no training."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from torch import _C
from torch.utils._python_dispatch import _disable_current_modes

from canary.protocol.failure import one_line, struck


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


@contextlib.contextmanager
def kept_apart(failed: Callable[[str], None]) -> Iterator[None]:
    """Keep an error inside from the training; `failed` gets it in words. That of one of the user's
    signal handlers passes: see `struck`."""
    try:
        yield
    except Exception as error:  # A user's objects may raise anything.
        if struck(error):
            raise
        failed(one_line(error))
