"""How long the spans of a training are: look, warm-up, timed steps. Standard library only."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from canary.config.schema import CanaryConfig

LOOK_STEPS = 12
"""Default length of the look."""
WARMUP, WARMUP_AFTER_LOOK = 10, 4
"""Longest default warm-up, without a look and after one."""


def look_steps(asked: int, steps: int | None) -> int:
    """Return how many first steps are looked at: at most a third of them, and one at least. A
    training that ends after its look does not ask.

    `steps`: of the whole training; None if it is not known.
    """
    return asked if steps is None else min(asked, max(1, steps // 3))


def steps_of(config: CanaryConfig) -> int | None:
    """Return the optimizer steps of a launch; None for all steps of a user's training."""
    if config.exact:
        return min(config.look_steps, config.max_steps or config.look_steps)
    return config.max_steps


def warmup_steps(looked: int, steps: int) -> int:
    """Return the default number of steps between the look and the timed ones."""
    return min(WARMUP_AFTER_LOOK if looked else WARMUP, (steps - looked) // 5)
