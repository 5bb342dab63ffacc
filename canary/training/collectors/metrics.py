"""The metrics that the trainers of trl collect in a step, and what is sent to their trackers.

Scalars go through the callbacks, not `Trainer.log`, which would change `log_history` and how often
the trainer logs."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from canary.protocol.heartbeat import ReadingFile
from canary.protocol.job import Job
from canary.record.exact import Exact
from canary.record.step_row import Row
from canary.record.tracked import (
    ALERTS,
    alerts_text,
    exact_scalars,
    row_scalars,
    sampled_scalars,
)

METRIC_ATTRIBUTES = ("_metrics", "_stored_metrics")
"""Attributes in which trl's trainers collect metrics between two logs; the second in ORPO, CPO."""
CUT_SHARE, EOS_RATE = "completions/clipped_ratio", "completions/eos_rate"
"""Share of a step's completions cut at the maximum length, and share that ended with EOS."""


class StepMetrics:
    """Finds the metrics of one trainer that are new since the previous step."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._seen: dict[str, int] = {}

    def _gathered(self) -> dict[str, list[float]]:
        """Return the metrics collected since the trainer's last log, one list per metric."""
        for attribute in METRIC_ATTRIBUTES:
            gathered = getattr(self._trainer, attribute, None)
            if isinstance(gathered, dict):
                return dict(gathered.get("train", {}))
        return {}

    def fresh(self) -> dict[str, float]:
        """Return the means of the values appended in this step. Call it before the trainer logs."""
        fresh: dict[str, float] = {}
        for name, history in self._gathered().items():
            seen = self._seen.get(name, 0)
            new = history[seen:] if len(history) >= seen else history
            self._seen[name] = len(history)
            if new:
                fresh[name] = sum(float(value) for value in new) / len(new)
        if CUT_SHARE in fresh:
            fresh[EOS_RATE] = 1.0 - fresh[CUT_SHARE]
        return fresh

    def step_ended(self) -> None:
        """Note the step's end. Call it after the trainer has logged, which empties its lists."""
        self._seen = {name: len(values) for name, values in self._gathered().items()}


def reporting_callbacks(trainer: Any) -> list[Any]:
    """Return the callbacks of a trainer that are transformers' trackers."""
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

    kinds = tuple(kind for kind in INTEGRATION_TO_CALLBACK.values() if isinstance(kind, type))
    return [each for each in trainer.callback_handler.callbacks if isinstance(each, kinds)]


class Trackers:
    """The active trackers of a trainer."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._callbacks = reporting_callbacks(trainer)

    def __bool__(self) -> bool:
        return bool(self._callbacks)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Send `values`, as if the trainer had logged them at `step`."""
        self._send(self._callbacks, step, values)

    def write(self, step: int, name: str, text: str) -> None:
        """Send a text at `step` to TensorBoard, the tracker that stores texts."""
        writers = [each for each in self._callbacks if hasattr(each, "tb_writer")]
        self._send(writers, step, {name: text})

    def _send(self, callbacks: Sequence[Any], step: int, logs: Mapping[str, Any]) -> None:
        trainer = self._trainer
        state = copy.copy(trainer.state)
        state.global_step = step
        for callback in callbacks:
            callback.on_log(
                trainer.args, state, trainer.control, logs=dict(logs), model=trainer.model
            )


FOLDER = "TENSORBOARD_LOGGING_DIR"


def keep_tensorboard(job: Job) -> None:
    """Send TensorBoard's files to the run's folder, as the trainer's output folder is removed. A
    folder in the user's environment goes first. Call this before the trainer is built."""
    folder = Path(job.rows_file).parent / "tensorboard" / f"launch{job.launch}"
    os.environ.setdefault(FOLDER, str(folder))


def silence(trainer: Any) -> None:
    """Remove all trackers from this trainer."""
    for callback in reporting_callbacks(trainer):
        trainer.remove_callback(callback)


class Reporter:
    """Sends each step to a trainer's trackers, and the signals of the look with a later step."""

    def __init__(self, trainer: Any, job: Job) -> None:
        self._trackers = Trackers(trainer)
        self._exact: dict[str, float] = {}
        self._sampled = ReadingFile(Path(job.scratch_dir))
        if hasattr(trainer.args, "logging_dir"):
            # transformers before 5 reads this instead of the environment.
            trainer.args.logging_dir = os.environ[FOLDER]

    def look_over(self, exact: Exact) -> None:
        """Keep the signals for the next row."""
        self._exact = exact_scalars(exact)

    def step(self, row: Row) -> None:
        """Send one row."""
        if not self._trackers:
            return
        step = int(row["step"])
        sampled = sampled_scalars(self._sampled.newest())
        self._trackers.log(step, row_scalars(row) | sampled | self._exact)
        self._exact = {}
        alerts = alerts_text(row)
        if alerts:
            self._trackers.write(step, ALERTS, alerts)
