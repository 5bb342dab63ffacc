"""Which optimizers make a step of the recorded model together, and which of them have stepped."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence

import torch
from torch.optim import Optimizer

from canary.training.exact.parameters import parameters_of
from canary.training.torch_loop.models import size_of


class StepOptimizers:
    """The optimizers of one model. The primary has the largest model of the process. A step ends
    when the primary has stepped, and all that stepped in the step before."""

    def __init__(
        self, optimizers: Sequence[Optimizer], parameters: Iterable[torch.Tensor] | None
    ) -> None:
        """`optimizers`: all of the process, the primary first. `parameters`: those of the model;
        None: those of the primary."""
        primary = optimizers[0]
        held = parameters_of(primary) if parameters is None else parameters
        self._held = {id(value) for value in held}
        self._primary = weakref.ref(primary)
        self._in_turn: set[int] = set()
        """Optimizers of this model with a loss of their own: they step after the primary's step."""
        self.size = size_of(primary)
        """How many numbers the primary holds."""
        self.own = tuple(one for one in optimizers if self.trains(one))
        self._expected = {id(one) for one in self.own}
        self._stepped: set[int] = set()

    def trains(self, optimizer: Optimizer) -> bool:
        """Return whether the optimizer trains the recorded model, for the recorded loss."""
        if id(optimizer) in self._in_turn:
            return False
        return any(self.holds(value) for value in parameters_of(optimizer))

    def holds(self, parameter: torch.Tensor) -> bool:
        """Return whether this is a parameter of the model."""
        return id(parameter) in self._held

    def stepped(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped."""
        self._stepped.add(id(optimizer))

    def has_stepped(self, optimizer: Optimizer) -> bool:
        """Return whether the optimizer has stepped in this step."""
        return id(optimizer) in self._stepped

    @property
    def any_stepped(self) -> bool:
        """Whether the step has begun to end."""
        return bool(self._stepped)

    @property
    def all_stepped(self) -> bool:
        """Whether all have stepped that are expected to."""
        return self._expected <= self._stepped

    @property
    def primary_stepped(self) -> bool:
        """Whether the primary has, or others have after the loop dropped it."""
        primary = self._primary()
        return self.any_stepped and (primary is None or self.has_stepped(primary))

    def expect_these(self) -> None:
        """From now on expect those that have stepped, and no others."""
        self._expected = set(self._stepped)

    def leave_out_late(self) -> int:
        """Leave out those that have not stepped: they do so after another backward."""
        return self._leave_out(self._expected - self._stepped)

    def leave_out_early(self) -> int:
        """Leave out those that have stepped: the primary does so after another backward."""
        return self._leave_out(self._stepped)

    def _leave_out(self, optimizers: set[int]) -> int:
        self._in_turn |= optimizers
        self._expected -= optimizers
        return len(optimizers)

    def step_ended(self) -> None:
        """The next step begins."""
        self._stepped = set()
