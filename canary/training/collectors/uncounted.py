"""The canary's operators, which are not part of the training's work."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch.utils._python_dispatch import _disable_current_modes


@contextlib.contextmanager
def uncounted() -> Iterator[None]:
    """Hide the operators inside, or in the decorated function, from all dispatch modes."""
    with _disable_current_modes():
        yield
