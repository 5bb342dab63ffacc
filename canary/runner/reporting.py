"""Steps and exact signals for the trackers of a trainer (`report_to`)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from canary.collect.probes.trackers import Trackers, reporting_callbacks
from canary.collect.tracked import row_scalars
from canary.runner.base import Job

TENSORBOARD = "tensorboard"


def keep_tensorboard(job: Job) -> None:
    """TensorBoard's files go to the run's folder, which outlives the trainer's own; to another
    place where the user's environment names one. To be called before the trainer is built."""
    os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(_folder(job)))


def _folder(job: Job) -> Path:
    return Path(job.rows_file).parent / TENSORBOARD / f"launch{job.launch}"


def silence(trainer: Any) -> None:
    """No tracker hears of this training."""
    for callback in reporting_callbacks(trainer):
        trainer.remove_callback(callback)


class Reporter:
    """Tells the trackers of one trainer of each step; before the first, of the probe's signals."""

    def __init__(self, trainer: Any, job: Job) -> None:
        self._trackers = Trackers(trainer)
        self._exact = dict(job.exact_scalars)
        if hasattr(trainer.args, "logging_dir"):
            # What transformers before 5 asks, instead of the environment.
            trainer.args.logging_dir = os.environ["TENSORBOARD_LOGGING_DIR"]

    def step(self, row: Mapping[str, Any]) -> None:
        """Hands on one row."""
        if not self._trackers:
            return
        if self._exact:
            self._trackers.log(0, self._exact)
            self._exact = {}
        self._trackers.log(row["step"], row_scalars(row))
