"""`Recorder`: the canary for a training loop of one's own."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from canary.errors import UsageError
from canary.record.alert import SEVERITIES, Severity
from canary.training.anomaly.hooks import StopTraining
from canary.training.recorder.attached import Keeper, NoKeeper, job_keeper, this_rank
from canary.training.recorder.loop import Loop, check_settings, plain_model, plain_optimizers
from canary.training.recorder.probe import LoopCollector
from canary.training.recorder.profiling import check_profiler
from canary.training.recorder.step import Step

Batch = TypeVar("Batch")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
PROBE_STEPS = 12


class Recorder:
    """Records a loop: `with Recorder("my-loop", model=model, optimizer=optimizer) as recorder:`.

    Alone it writes a run's folder under `output_dir`; the first `probe_steps` steps carry the
    exact signals and are left out of the speeds. Under `canary exec` it is the half inside the
    process, and `output_dir`, `probe_steps`, `max_steps`, `tracker`, `profiler` and `stop_on` are
    the command's matter.

    Args:
        name: of the canary; letters, digits, `.`, `_`, `-`.
        model: the module in training, on its device; for parameters, gradients and updates.
        optimizer: a torch optimizer, accelerate's wrapper of one, or several; with it a step ends
            with the `with recorder.step()` in which an optimizer has stepped, and the ones before
            are its micro-batches.
        reference_model: a frozen module that must stay as it is.
        tokenizer: for counts of special tokens, and its vocabulary's hash.
        dataset: a datasets.Dataset, whose rows are hashed.
        config: the loop's settings; a change in them explains a change in what is learned.
        output_dir: folder of run folders.
        probe_steps: first steps with the exact signals; 0 for none.
        max_steps: steps after which `done` is true and nothing more is recorded.
        tracker: called with a step and its scalars by name, as `wandb.log(values, step)` would be.
        profiler: the section `profiler` of a config, such as `{"start_step": 20, "num_steps": 5}`;
            these steps are profiled and left out of the speeds.
        stop_on: severity (`critical`, `high`, `medium`, `low`) from which on an alert ends the loop
            by raising `canary.anomaly.StopTraining`; the record then has failed.

    Raises:
        UsageError: an argument that cannot be used.
        MachineError: no place for the record.
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
        output_dir: str | Path = "canary_output",
        probe_steps: int = PROBE_STEPS,
        max_steps: int | None = None,
        tracker: Callable[[int, dict[str, float]], None] | None = None,
        profiler: Mapping[str, Any] | None = None,
        stop_on: Severity | None = None,
    ) -> None:
        if not NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} cannot be the name of a canary",
                "letters, digits, '.', '_' and '-', at most 64",
            )
        for argument, value, least in (
            ("probe_steps", probe_steps, 0),
            ("max_steps", max_steps, 1),
        ):
            if value is not None and value < least:
                raise UsageError(f"Recorder({argument}={value})", f"{argument} is {least} or more")
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
        profiled = None if profiler is None else check_profiler(profiler, probe_steps, max_steps)
        if stop_on is not None and stop_on not in SEVERITIES:
            raise UsageError(f"Recorder(stop_on={stop_on!r})", f"one of {', '.join(SEVERITIES)}")
        self._own = (Path(output_dir), probe_steps, max_steps, tracker, profiled, stop_on)
        self._keeper: Keeper | None = None
        self._probe: LoopCollector | None = None
        self.folder: Path | None = None
        """The run's folder, where the Recorder writes one itself."""

    @property
    def done(self) -> bool:
        """Whether all steps that are to be recorded have been; false where no number was set."""
        limit = None if self._keeper is None else self._keeper.stop_after
        return limit is not None and self._probe is not None and self._probe.steps >= limit

    def batches(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        """The loader's batches, until `done`."""
        iterator = iter(loader)
        while not self.done:
            try:
                batch = next(iterator)
            except StopIteration:
                return
            yield batch

    @contextlib.contextmanager
    def step(self, batch: Any = None) -> Iterator[Step]:
        """One step, or one micro-batch where the optimizer steps later. What passes between two
        steps is the data phase.

        Raises:
            UsageError: outside of `with Recorder(...)`.
        """
        if self._probe is None or self._keeper is None:
            raise UsageError(
                "recorder.step outside of its loop", "write: with Recorder(...) as recorder:"
            )
        self._end_what_ended(self._probe)
        if self.done:
            self._keeper.past_end()
            yield Step(None)
            return
        self._probe.step_begins(batch)
        yield Step(self._probe)
        if self._probe.step_ends():
            self._keeper.step_ended(self._probe)
            if self.done:
                self._probe.detach()

    def __enter__(self) -> Self:
        self._keeper = self._find_keeper()
        exact = self._keeper.begins(self._loop)
        keeper = self._keeper
        self._probe = LoopCollector(
            self._loop, keeper.keep, keeper.launch, exact, keeper.profiler(), keeper.watch()
        )
        self._probe.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._keeper is not None
        assert self._probe is not None
        probe, self._probe = self._probe, None
        if error is None:
            try:
                self._end_what_ended(probe)
                probe.rows.flush(wait=True)
            except StopTraining as stop:
                self._keeper.ends(probe, stop)
                raise
        self._keeper.ends(probe, error)

    def _end_what_ended(self, probe: LoopCollector) -> None:
        """A step whose optimizer stepped behind its `recorder.step`."""
        if self._keeper is not None and probe.ended_outside():
            self._keeper.step_ended(probe)

    def _find_keeper(self) -> Keeper:
        found = job_keeper()
        if found is not None:
            return found
        output_dir, probe_steps, max_steps, tracker, profiled, stop_on = self._own
        if this_rank():
            return NoKeeper(max_steps)
        # Here, because a command's own Python may lack what reading records takes.
        from canary.training.recorder.standalone import OwnKeeper

        keeper = OwnKeeper(
            self._loop.name, output_dir, probe_steps, max_steps, tracker, profiled, stop_on
        )
        self.folder = keeper.path
        return keeper
