"""Wraps `train` of `transformers.Trainer` and of every subclass that overrides it."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from types import ModuleType
from typing import Any

from canary.protocol.job import JOB, Job
from canary.training.attach.watch import WatchedTraining


def hook(module: ModuleType, started: float) -> None:
    """Hook the freshly loaded `transformers.trainer`; `started` is when the process began."""
    job = Job.read(Path(os.environ[JOB]))
    watch = WatchedTraining(job, started)
    trainer_class = module.Trainer
    _wrap(trainer_class, watch)

    def subclassed(cls: Any, /, **kwargs: Any) -> None:
        super(trainer_class, cls).__init_subclass__(**kwargs)
        # trl's PPOTrainer and some of users' trainers have another loop.
        if "train" in cls.__dict__:
            _wrap(cls, watch)

    trainer_class.__init_subclass__ = classmethod(subclassed)
    watch.process_begins()


def _wrap(cls: Any, watch: WatchedTraining) -> None:
    original = cls.__dict__["train"]

    @functools.wraps(original)
    def train(self: Any, *args: Any, **kwargs: Any) -> Any:
        return watch.around(self, original, args, kwargs)

    cls.train = train
