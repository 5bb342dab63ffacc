"""Steps and exact signals for the trackers of a trainer (`report_to`)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from canary.protocol.job import LEVEL, Job
from canary.protocol.readings import ReadingFile
from canary.record.step_row import Row
from canary.record.tracked import ALERTS, alerts_text, row_scalars, sampled_scalars
from canary.training.collectors.trackers import Trackers, reporting_callbacks

TENSORBOARD = "tensorboard"
FOLDER = "TENSORBOARD_LOGGING_DIR"


def keep_tensorboard(job: Job) -> None:
    """TensorBoard's files go to the run's folder, which outlives the trainer's own; to another
    place where the user's environment names one. To be called before the trainer is built."""
    level = os.environ.get(LEVEL)
    own = Path(job.rows_file).parent / TENSORBOARD
    if level:
        logs = Path(os.environ.get(FOLDER) or own).expanduser()
        os.environ[FOLDER] = str(level_folder(logs, level))
    else:
        os.environ.setdefault(FOLDER, str(own / f"launch{job.launch}"))


def level_folder(logs: Path, level: str) -> Path:
    """The folder of one run of a level below `logs`: TensorBoard overlays what lies side by side.
    `basic`, then `basic-2` for the next run of the same level, and so on."""
    run = 1
    while (folder := logs / (level if run == 1 else f"{level}-{run}")).exists():
        run += 1
    return folder


def silence(trainer: Any) -> None:
    """No tracker hears of this training."""
    for callback in reporting_callbacks(trainer):
        trainer.remove_callback(callback)


class Reporter:
    """Tells the trackers of one trainer of each step; before the first, of the probe's signals."""

    def __init__(self, trainer: Any, job: Job) -> None:
        self._trackers = Trackers(trainer)
        self._exact = dict(job.exact_scalars)
        self._sampled = ReadingFile(Path(job.scratch_dir))
        if hasattr(trainer.args, "logging_dir"):
            # What transformers before 5 asks, instead of the environment.
            trainer.args.logging_dir = os.environ[FOLDER]

    def step(self, row: Row) -> None:
        """Hands on one row."""
        if not self._trackers:
            return
        if self._exact:
            self._trackers.log(0, self._exact)
            self._exact = {}
        step = int(row["step"])
        self._trackers.log(step, row_scalars(row) | sampled_scalars(self._sampled.newest()))
        alerts = alerts_text(row)
        if alerts:
            self._trackers.write(step, ALERTS, alerts)
