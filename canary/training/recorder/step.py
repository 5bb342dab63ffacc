"""One step of a loop as its user sees it: `with recorder.step(batch) as step:`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from canary.errors import UsageError, did_you_mean, nearest
from canary.record.phases import PHASES

if TYPE_CHECKING:
    from canary.training.recorder.probe import LoopCollector


class Step:
    """Takes what the loop tells of its step. Past the steps that are recorded it takes nothing."""

    def __init__(self, probe: LoopCollector | None) -> None:
        self._probe = probe

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time inside belongs to this phase, one of `canary.record.phases.PHASES`; an inner phase
        keeps its own.

        Raises:
            UsageError: no such phase.
        """
        if name not in PHASES:
            hint = did_you_mean(nearest(name, PHASES), f"one of {', '.join(PHASES)}")
            raise UsageError(f"unknown phase {name!r}", hint)
        if self._probe is None:
            yield
            return
        with self._probe.phase(name):
            yield

    def batch(self, batch: Any) -> None:
        """A further micro-batch of this step: a mapping, a sequence, or a tensor."""
        if self._probe is not None:
            self._probe.batch(batch)

    def loss(self, value: Any) -> None:
        """The loss of a micro-batch as it was computed, not divided by their number. The step's
        loss is their mean. A tensor of one element stays on its device.

        Raises:
            UsageError: not one number.
        """
        if self._probe is not None:
            self._probe.loss(value)

    def grad_norm(self, value: Any) -> None:
        """The norm of all gradients before clipping, as `clip_grad_norm_` returns it."""
        if self._probe is not None:
            self._probe.grad_norm(value)

    def learning_rate(self, value: Any) -> None:
        """Where no optimizer was given that knows it."""
        if self._probe is not None:
            self._probe.learning_rate(value)

    def tokens(self, **counts: Any) -> None:
        """`input`, `label` or `completion` tokens of this step, where the batches do not show them.

        Raises:
            UsageError: another name.
        """
        for name in counts:
            if name not in ("input", "label", "completion"):
                raise UsageError(
                    f"step.tokens has no {name!r}", "it takes input=, label= and completion="
                )
        if self._probe is not None:
            self._probe.tokens({f"{name}_tokens": value for name, value in counts.items()})

    def log(self, **metrics: Any) -> None:
        """Rewards, KL, entropy, lengths ...: the mean of what was given for a name in this step.

        Raises:
            UsageError: a value that is not one number.
        """
        if self._probe is not None:
            self._probe.log(metrics)
