"""`Recorder`: the canary for a user's training loop."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, TypeVar

from canary.config.output import OUTPUT_DIR
from canary.config.spans import LOOK_STEPS
from canary.errors import UsageError, did_you_mean, nearest, replaced
from canary.record.alert import Severity
from canary.training.anomaly.hooks import StopTraining
from canary.training.collectors.distributed import this_rank
from canary.training.recorder.attached import Keeper, job_keeper
from canary.training.recorder.collector import LoopCollector
from canary.training.recorder.loop import Loop, check_settings, plain_model, plain_optimizers
from canary.training.recorder.step import Step

if TYPE_CHECKING:
    from typing import Self

Batch = TypeVar("Batch")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Recorder:
    """Records a loop: `with Recorder("my-loop", model=model, optimizer=optimizer) as recorder:`.

    Alone it writes a run's folder in `output_dir`. The first `look_steps` steps are looked at
    closely and left out of the speeds. Under `canary exec` it ignores `output_dir`,
    `look_steps`, `max_steps`, `tracker`, `profiler` and `stop_on`: the command decides them.

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
        output_dir: folder of run folders.
        look_steps: number of first steps to look at closely, at most a third of `max_steps`, or 0.
        max_steps: after these steps `done` is true and nothing more is recorded.
        tracker: called with a step and its scalars by name.
        profiler: the section `profiler` of a config, such as `{"start_step": 20, "num_steps": 5}`;
            these steps are profiled and left out of the speeds.
        stop_on: an alert of this severity (`critical`, `high`, `medium`, `low`) or worse ends the
            loop by raising `canary.anomaly.StopTraining`; the record's status is then `failed`.

    Raises:
        UsageError: an argument is invalid; alone some only when the loop begins.
        MachineError: the record cannot be written.
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
        output_dir: str | Path = OUTPUT_DIR,
        look_steps: int = LOOK_STEPS,
        max_steps: int | None = None,
        tracker: Callable[[int, dict[str, float]], None] | None = None,
        profiler: Mapping[str, Any] | None = None,
        stop_on: Severity | None = None,
        **unknown: Never,
    ) -> None:
        for argument in unknown:
            near = nearest(argument, type(self).__init__.__annotations__)
            raise UsageError(
                f"Recorder({argument}=...): unknown argument",
                replaced(argument) or did_you_mean(near),
            )
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
        self._given = {
            "name": name,
            "output_dir": str(output_dir),
            "look_steps": look_steps,
            "max_steps": max_steps,
            "stop_on": stop_on,
            **({} if profiler is None else {"profiler": {"enabled": True, **profiler}}),
        }
        self._tracker = tracker
        self._keeper: Keeper | None = None
        self._collector: LoopCollector | None = None
        self.folder: Path | None = None
        """The run's folder, if the Recorder writes one."""

    @property
    def done(self) -> bool:
        """Whether all steps to record are done; False without `max_steps`."""
        limit = None if self._keeper is None else self._keeper.stop_after
        return limit is not None and self._collector is not None and self._collector.steps >= limit

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
        if self._collector is None or self._keeper is None:
            raise UsageError(
                "recorder.step was called outside of its recorder's `with`",
                "write: with Recorder(...) as recorder:",
            )
        self._close_late_step(self._collector)
        if self.done:
            self._keeper.past_end(self._collector)
            yield Step(None)
            return
        self._collector.step_begins(batch)
        yield Step(self._collector)
        if self._collector.step_ends():
            self._keeper.step_ended(self._collector)
            if self.done:
                self._collector.detach()

    def __enter__(self) -> Self:
        self._keeper = self._find_keeper()
        look = self._keeper.begin(self._loop)
        keeper = self._keeper
        self._collector = LoopCollector(
            self._loop, keeper.keep, keeper.launch, look, keeper.profiler()
        )
        self._collector.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._keeper is not None
        assert self._collector is not None
        collector, self._collector = self._collector, None
        if error is None:
            try:
                self._close_late_step(collector)
                collector.rows.flush(wait=True)
            except StopTraining as stop:
                self._keeper.end(collector, stop)
                raise
        self._keeper.end(collector, error)

    def _close_late_step(self, collector: LoopCollector) -> None:
        """Close a step whose optimizer stepped after its `recorder.step`."""
        if self._keeper is not None and collector.ended_outside():
            self._keeper.step_ended(collector)

    def _find_keeper(self) -> Keeper:
        found = job_keeper()
        if found is not None:
            return found
        # Imported here, because a user's Python may lack the packages that read records.
        from canary.training.recorder.standalone import RecordKeeper, checked

        config = checked(self._given)
        if this_rank()[0]:
            return Keeper(config.max_steps)
        keeper = RecordKeeper(config, self._tracker)
        self.folder = keeper.path
        return keeper
