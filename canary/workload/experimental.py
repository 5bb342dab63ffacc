"""Trainers that live in `trl.experimental`, where they may come and go between versions."""

from __future__ import annotations

import importlib
from typing import Any

import trl

from canary.errors import ConfigError
from canary.workload.data import require_enough
from canary.workload.spec import WorkloadSpec


def offered(module: str, prefix: str) -> tuple[Any, Any]:
    """The trainer and config classes, from `trl.experimental` or from trl itself.

    Raises ConfigError where the installed trl has neither.
    """
    for place in (f"trl.experimental.{module}", "trl"):
        try:
            home = importlib.import_module(place)
        except ModuleNotFoundError:
            continue
        trainer = getattr(home, f"{prefix}Trainer", None)
        config = getattr(home, f"{prefix}Config", None)
        if trainer is not None and config is not None:
            return trainer, config
    raise ConfigError(
        f"trl {trl.__version__} offers no {prefix}",
        "install a trl that has it (1.16.0 does, in trl.experimental), or choose another "
        "training_type",
        key="training_type",
    )


def require_completions(spec: WorkloadSpec, trainer: Any) -> None:
    """Takes out the pairs that truncation left without a completion: their loss is not a number.

    Raises InputError where too few rows are left.
    """
    rows = trainer.train_dataset
    names = ("chosen_labels", "rejected_labels")
    usable = [
        number
        for number, row in enumerate(rows)
        if all(any(label >= 0 for label in row[name]) for name in names)
    ]
    require_enough(spec, len(usable))
    if len(usable) < len(rows):
        trainer.train_dataset = rows.select(usable)
