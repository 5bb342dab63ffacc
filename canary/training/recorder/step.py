"""One step of a user's loop: `with recorder.step(batch) as step:`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from canary.errors import UsageError, did_you_mean, nearest
from canary.record.phases import PHASES

if TYPE_CHECKING:
    from canary.training.recorder.collector import LoopCollector


class Step:
    """Takes the loop's reports on its step. After the last recorded step it ignores them."""

    def __init__(self, collector: LoopCollector | None) -> None:
        self._collector = collector

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time inside as this phase, one of `canary.record.phases.PHASES`. The time of an
        inner phase counts only for that one.

        Raises:
            UsageError: no such phase.
        """
        if name not in PHASES:
            hint = did_you_mean(nearest(name, PHASES), f"one of {', '.join(PHASES)}")
            raise UsageError(f"unknown phase {name!r}", hint)
        if self._collector is None:
            yield
            return
        with self._collector.phase(name):
            yield

    def batch(self, batch: Any) -> None:
        """Add a micro-batch to this step: a mapping, a sequence, or a tensor."""
        if self._collector is not None:
            self._collector.batch(batch)

    def loss(self, value: Any) -> None:
        """Add a micro-batch's loss, not divided by the number of micro-batches: the step's loss is
        the mean. A tensor of one element stays on its device.

        Raises:
            UsageError: it is not one number.
        """
        if self._collector is not None:
            self._collector.loss(value)

    def grad_norm(self, value: Any) -> None:
        """Set the norm of all gradients before clipping, as `clip_grad_norm_` returns it."""
        if self._collector is not None:
            self._collector.grad_norm(value)

    def learning_rate(self, value: Any) -> None:
        """Set the learning rate; not needed if the Recorder has an optimizer."""
        if self._collector is not None:
            self._collector.learning_rate(value)

    def tokens(self, **counts: Any) -> None:
        """Set the step's `input`, `label` or `completion` tokens, if the batches do not show them.

        Raises:
            UsageError: another name.
        """
        for name in counts:
            if name not in ("input", "label", "completion"):
                raise UsageError(
                    f"step.tokens has no {name!r}", "it takes input=, label= and completion="
                )
        if self._collector is not None:
            self._collector.tokens({f"{name}_tokens": value for name, value in counts.items()})

    def log(self, **metrics: Any) -> None:
        """Add rewards, KL, entropy, lengths ...: the row gets the mean per name.

        Raises:
            UsageError: a value that is not one number.
        """
        if self._collector is not None:
            self._collector.log(metrics)
