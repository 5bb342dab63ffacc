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
from canary.record.alert import SEVERITIES, Severity
from canary.training.anomaly.hooks import StopTraining
from canary.training.recorder.attached import Keeper, job_keeper, this_rank
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
        UsageError: an argument is invalid.
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
        for argument, value, least in (
            ("look_steps", look_steps, 0),
            ("max_steps", max_steps, 1),
        ):
            if value is not None and value < least:
                raise UsageError(
                    f"Recorder({argument}={value})", f"{argument} must be at least {least}"
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
        profiled = None if profiler is None else check_profiler(profiler, look_steps, max_steps)
        if stop_on is not None and stop_on not in SEVERITIES:
            raise UsageError(f"Recorder(stop_on={stop_on!r})", f"one of {', '.join(SEVERITIES)}")
        self._options = (Path(output_dir), look_steps, max_steps, tracker, profiled, stop_on)
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
            self._keeper.past_end()
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
        output_dir, look_steps, max_steps, tracker, profiled, stop_on = self._options
        if this_rank():
            return Keeper(max_steps)
        # Imported here, because a user's Python may lack the packages that read records.
        from canary.training.recorder.standalone import RecordKeeper

        keeper = RecordKeeper(
            self._loop.name, output_dir, look_steps, max_steps, tracker, profiled, stop_on
        )
        self.folder = keeper.path
        return keeper


DEFAULTS: dict[str, Any] = {
    "enabled": True,
    "start_step": 20,
    "num_steps": 5,
    "output_dir": None,
    "record_shapes": False,
    "profile_memory": False,
    "with_stack": False,
}


def check_profiler(
    given: Mapping[str, Any], look_steps: int, max_steps: int | None
) -> dict[str, Any]:
    """Return the section with its defaults.

    Raises:
        UsageError: an unknown key, a wrong value, or steps that cannot be profiled.
    """
    for key, value in given.items():
        if key not in DEFAULTS:
            raise UsageError(
                f"Recorder(profiler=...) has no {key!r}",
                did_you_mean(nearest(key, DEFAULTS), f"one of {', '.join(DEFAULTS)}"),
            )
        _check_value(key, value)
    settings = DEFAULTS | dict(given)
    if not settings["enabled"]:
        return settings
    start = settings["start_step"]
    last = start + settings["num_steps"] - 1
    if start <= look_steps:
        raise UsageError(
            f"Recorder(profiler=...) begins at step {start}, but the first {look_steps} steps "
            "are looked at closely",
            f"set start_step above {look_steps}, or lower look_steps",
        )
    if max_steps is not None and last > max_steps:
        raise UsageError(
            f"Recorder(profiler=...) ends at step {last}, beyond max_steps ({max_steps})",
            "lower start_step or num_steps",
        )
    return settings


def _check_value(key: str, value: Any) -> None:
    expected = "a whole number from 1" if isinstance(DEFAULTS[key], int) else "a folder's name"
    if isinstance(DEFAULTS[key], bool):
        expected, fits = "True or False", isinstance(value, bool)
    elif key == "output_dir":
        fits = value is None or (isinstance(value, str) and bool(value))
    else:
        fits = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    if not fits:
        raise UsageError(f"Recorder(profiler={{{key!r}: {value!r}}})", f"{key} must be {expected}")
