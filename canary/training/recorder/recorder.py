"""`Recorder`: the canary for a user's training loop, and one step of it:
`with recorder.step(batch) as step:`."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from canary.errors import UsageError, did_you_mean, nearest
from canary.record.phases import PHASES
from canary.training.anomaly.hooks import StopTraining
from canary.training.collectors.steps import RunningStep
from canary.training.recorder.collector import LoopCollector, claimed_job, scalar
from canary.training.recorder.loop import Loop, check_settings, plain_model, plain_optimizers

if TYPE_CHECKING:
    from typing import Self


class Step:
    """Takes the loop's reports on its step. After the last recorded step it ignores them."""

    def __init__(self, collector: LoopCollector | None) -> None:
        self._collector = collector

    @property
    def _now(self) -> RunningStep:
        return RunningStep() if self._collector is None else self._collector.now

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
        self._now.losses.append(scalar(value, "step.loss"))

    def grad_norm(self, value: Any) -> None:
        """Set the norm of all gradients before clipping, as `clip_grad_norm_` returns it."""
        self._now.grad_norm = scalar(value, "step.grad_norm")

    def learning_rate(self, value: Any) -> None:
        """Set the learning rate; not needed if the Recorder has an optimizer."""
        self._now.learning_rate = scalar(value, "step.learning_rate")

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
            self._now.tokens[f"{name}_tokens"] = scalar(counts[name], "step.tokens")

    def log(self, **metrics: Any) -> None:
        """Add rewards, KL, entropy, lengths ...: the row gets the mean per name.

        Raises:
            UsageError: a value that is not one number.
        """
        for name, value in metrics.items():
            number = scalar(value, f"step.log({name}=...)")
            self._now.metrics.setdefault(name, []).append(number)


Batch = TypeVar("Batch")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Recorder:
    """Records a loop: `with Recorder("my-loop", model=model, optimizer=optimizer) as recorder:`.

    It writes into the record of `canary exec`, which decides how many steps are recorded. Without
    `canary exec` the loop runs as it is, and nothing is recorded.

    Args:
        name: of the canary; letters, digits, `.`, `_`, `-`.
        model: the module in training, on its device; for parameters, gradients and updates.
        optimizer: one or several torch optimizers, or accelerate's wrappers. A step then ends with
            the `with recorder.step()` in which an optimizer has stepped; each one before it is a
            micro-batch.
        reference_model: a frozen module, checked to stay unchanged.
        tokenizer: for counts of special tokens and the vocabulary's hash.
        dataset: a datasets.Dataset, whose rows are hashed.
        config: the loop's settings; a changed setting can explain a change in learning.

    Raises:
        UsageError: an argument is invalid.
    """

    def __init__(
        self,
        name: str,
        *,
        model: Any = None,
        optimizer: Any = None,
        reference_model: Any = None,
        tokenizer: Any = None,
        dataset: Any = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        if not NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} cannot be the name of a canary",
                "use at most 64 letters, digits, '.', '_' and '-'",
            )
        check_settings(config or {})
        self._loop = Loop(
            name=name,
            model=plain_model(model),
            optimizers=plain_optimizers(optimizer),
            ref_model=plain_model(reference_model),
            processing_class=tokenizer,
            train_dataset=dataset,
            settings=dict(config or {}),
        )
        self._entered = False
        self._collector: LoopCollector | None = None

    @property
    def done(self) -> bool:
        """Whether all steps to record are done; False without `max_steps`."""
        collector = self._collector
        if collector is None or collector.stop_after is None:
            return False
        return collector.steps >= collector.stop_after

    def batches(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the loader's batches until `done`."""
        iterator = iter(loader)
        while not self.done:
            try:
                batch = next(iterator)
            except StopIteration:
                return
            yield batch

    @contextlib.contextmanager
    def step(self, batch: Any = None) -> Iterator[Step]:
        """Record one step, or one micro-batch if the optimizer steps later. Time between steps
        counts as the data phase.

        Raises:
            UsageError: called outside of `with Recorder(...)`.
        """
        if not self._entered:
            raise UsageError(
                "recorder.step was called outside of its recorder's `with`",
                "write: with Recorder(...) as recorder:",
            )
        if self._collector is None:
            yield Step(None)
            return
        self._collector.close_late_step()
        if self.done:
            self._collector.past_end()
        self._collector.step_begins(batch)
        yield Step(self._collector)
        if self._collector.step_ends() and self.done:
            self._collector.detach()

    def __enter__(self) -> Self:
        self._entered = True
        claimed = claimed_job()
        if claimed is not None:
            self._collector = LoopCollector(self._loop, *claimed)
            self._collector.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._entered = False
        collector, self._collector = self._collector, None
        if collector is None:
            return
        if error is None:
            try:
                collector.close_late_step()
                collector.rows.flush(wait=True)
            except StopTraining as stop:
                collector.end(stop)
                raise
        collector.end(error)
