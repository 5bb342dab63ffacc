"""Sends steps to a trainer's trackers (`report_to`)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from canary.protocol.heartbeat import ReadingFile
from canary.protocol.job import LEVEL, Job
from canary.record.exact import Exact
from canary.record.step_row import Row
from canary.record.tracked import ALERTS, alerts_text, exact_scalars, row_scalars, sampled_scalars
from canary.training.collectors.metrics import Trackers, reporting_callbacks

TENSORBOARD = "tensorboard"
FOLDER = "TENSORBOARD_LOGGING_DIR"


def keep_tensorboard(job: Job) -> None:
    """Send TensorBoard's files to the run's folder, as the trainer's output folder is removed. A
    folder in the user's environment goes first. Call this before the trainer is built."""
    level = os.environ.get(LEVEL)
    default = Path(job.rows_file).parent / TENSORBOARD
    if level:
        logs = Path(os.environ.get(FOLDER) or default).expanduser()
        os.environ[FOLDER] = str(level_folder(logs, level))
    else:
        os.environ.setdefault(FOLDER, str(default / f"launch{job.launch}"))


def level_folder(logs: Path, level: str) -> Path:
    """Return a new folder in `logs` for one run of a level: `basic`, then `basic-2` and so on.
    TensorBoard overlays folders side by side."""
    run = 1
    while (folder := logs / (level if run == 1 else f"{level}-{run}")).exists():
        run += 1
    return folder


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
