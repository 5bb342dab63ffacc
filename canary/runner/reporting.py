"""Steps and exact signals for the trackers of a trainer (`report_to`), through its own callbacks.

`Trainer.log` is not used: it would change `log_history` and how often the trainer logs.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from canary.collect.tracked import row_scalars
from canary.runner.base import Job

TENSORBOARD = "tensorboard"


def keep_tensorboard(job: Job) -> None:
    """TensorBoard's files go to the run's folder, which outlives the trainer's own; to another
    place where the user's environment names one. To be called before the trainer is built."""
    os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(_folder(job)))


def _folder(job: Job) -> Path:
    return Path(job.rows_file).parent / TENSORBOARD / f"launch{job.launch}"


def reporting_callbacks(trainer: Any) -> list[Any]:
    """The callbacks of a trainer that are transformers' trackers."""
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

    kinds = tuple(kind for kind in INTEGRATION_TO_CALLBACK.values() if isinstance(kind, type))
    return [one for one in trainer.callback_handler.callbacks if isinstance(one, kinds)]


def silence(trainer: Any) -> None:
    """No tracker hears of this training."""
    for callback in reporting_callbacks(trainer):
        trainer.remove_callback(callback)


class Reporter:
    """Tells the trackers of one trainer of each step; before the first, of the probe's signals."""

    def __init__(self, trainer: Any, job: Job) -> None:
        self._trainer = trainer
        self._callbacks = reporting_callbacks(trainer)
        self._exact = dict(job.exact_scalars)
        if hasattr(trainer.args, "logging_dir"):
            # What transformers before 5 asks, instead of the environment.
            trainer.args.logging_dir = os.environ["TENSORBOARD_LOGGING_DIR"]

    def step(self, row: Mapping[str, Any]) -> None:
        """Hands on one row."""
        if not self._callbacks:
            return
        if self._exact:
            self._log(0, self._exact)
            self._exact = {}
        self._log(row["step"], row_scalars(row))

    def _log(self, step: int, values: dict[str, float]) -> None:
        trainer = self._trainer
        state = copy.copy(trainer.state)
        state.global_step = step
        for callback in self._callbacks:
            callback.on_log(
                trainer.args, state, trainer.control, logs=dict(values), model=trainer.model
            )
