"""What the training process measures of each update, for the relations that judge it.

Torch-free: only a few numbers per row are kept, not its tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

CONSTANT = 2e-3
"""Relative: weights that differ by less are the same."""

ENGLISH = re.compile("[aouAOU]ppo[inrs]")
"""Of `support`, `suppose`, `opportunity`, `opponent`, `appoint`: these do not name PPO."""


@dataclass(frozen=True)
class TrainedRow:
    """A trained row of an update: how much the loss raises its tokens, and who else scored it."""

    tokens: int
    """Tokens that are trained on."""
    mean: float
    """Mean weight of these tokens; negative if the loss lowers them."""
    spread: float
    """Largest distance of a weight to the mean, relative to the mean."""
    group: int | None = None
    """A number of the prompt that the row was sampled for; None if it was not sampled."""
    itself: bool = False
    """Whether the policy was called without gradients too, in this update and in the same state,
    and said the same."""
    elsewhere: bool = False
    """Whether the row has log-probabilities without gradients of something else: another model,
    other adapters or other weights."""
    towards: float | None = None
    """Correlation of the weights, within the row, with how much likelier a reference finds a token
    than the policy; None without a reference, or if either does not vary."""

    apart: float | None = None
    """How far the policy's log-probabilities in the update are from those without gradients just
    before it, at most; None without such a call in the same state."""

    @property
    def total(self) -> float:
        """The sum of the row's weights."""
        return self.mean * self.tokens

    @property
    def is_constant(self) -> bool:
        """Whether all tokens weigh the same."""
        return self.spread <= CONSTANT


@dataclass(frozen=True)
class TrainedUpdate:
    """One update."""

    number: int
    """From 1."""
    rows: tuple[TrainedRow, ...]
    """Empty if the gradient does not show what each token weighs."""
    losses: tuple[float, ...] = ()
    """One per backward pass."""
    called: tuple[str, ...] = ()
    """Names of classes, functions, modules and files that the update runs in, with their kind."""
    failed: str = ""
    """Why the rows could not be read; empty if they were."""


def is_called(updates: Sequence[TrainedUpdate], *parts: str) -> str:
    """Return the first name that has one of these parts; empty without one."""
    names = dict.fromkeys(name for one in updates for name in one.called)
    spelt = {name: ENGLISH.sub("", name).lower() for name in names}
    return next((name for name in names if any(part in spelt[name] for part in parts)), "")


def prefers(update: TrainedUpdate) -> bool:
    """Whether the loss raises some rows and lowers others."""
    return any(one.mean > 0 for one in update.rows) and any(one.mean < 0 for one in update.rows)
