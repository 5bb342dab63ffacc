"""The metrics that the trainers of trl collect in a step, and the trackers of a trainer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from canary.protocol.job import Job

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


FOLDER = "TENSORBOARD_LOGGING_DIR"


def keep_tensorboard(job: Job) -> None:
    """Send TensorBoard's files to the run's folder, as the trainer's output folder is removed. A
    folder in the user's environment goes first. Call this before the trainer is built."""
    default = Path(job.rows_file).parent / "tensorboard" / f"launch{job.launch}"
    os.environ.setdefault(FOLDER, str(default))


def use_tensorboard_folder(trainer: Any) -> None:
    """Let this trainer use it too: transformers before 5 reads an argument, no environment."""
    if hasattr(trainer.args, "logging_dir"):
        trainer.args.logging_dir = os.environ[FOLDER]


def silence(trainer: Any) -> None:
    """Remove all trackers from this trainer."""
    for callback in reporting_callbacks(trainer):
        trainer.remove_callback(callback)
