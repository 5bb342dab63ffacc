"""The random numbers that a training process shares: Python's, numpy's and torch's."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch


def random_states() -> Callable[[], None]:
    """Return what puts every shared stream of random numbers back to where it is now."""
    python, cpu = random.getstate(), torch.get_rng_state()
    on_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    numpy: Any = sys.modules["numpy"].random if "numpy" in sys.modules else None
    numbers = None if numpy is None else numpy.get_state(legacy=False)

    def restore() -> None:
        random.setstate(python)
        torch.set_rng_state(cpu)
        if on_gpus:
            torch.cuda.set_rng_state_all(on_gpus)
        if numpy is not None:
            numpy.set_state(numbers)

    return restore


@contextlib.contextmanager
def kept_random() -> Iterator[None]:
    """Run a block that leaves the random numbers as they were."""
    restore = random_states()
    try:
        yield
    finally:
        restore()
