"""Gates on metrics, and records with curves, for their tests."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from canary.compare.report import Check, Comparison
from canary.config.metric_gates import MetricGate
from canary.record.curves import Curve, Source
from canary.record.exact import Exact
from canary.record.types import Distribution, RunRecord
from tests.unit.comparing import record


def gate(name: str = "loss", **keys: Any) -> MetricGate:
    """A gate, as a config has it."""
    return MetricGate.model_validate({"name": name, **keys})


def curve(values: Sequence[float], first: int = 1, every: int = 1) -> Curve:
    """A curve from step `first` on."""
    steps = [first + every * place for place in range(len(values))]
    return Curve(steps=steps, values=list(values))


def with_curve(run: RunRecord, values: Sequence[float], name: str = "loss") -> RunRecord:
    """The record with this metric at steps 1, 2 ..."""
    return run.model_copy(update={"curves": {**run.curves, name: curve(values)}})


def runs(
    means: Sequence[float], first: int = 0, *, name: str = "reward", steps: int = 20
) -> list[RunRecord]:
    """Runs with a flat curve each."""
    return [
        with_curve(record(first + place), [mean] * steps, name) for place, mean in enumerate(means)
    ]


def scattered(count: int, mean: float = 1.0, sd: float = 0.02, seed: int = 0) -> list[float]:
    """Normal numbers."""
    chance = random.Random(seed)
    return [mean + sd * chance.gauss(0, 1) for _ in range(count)]


def imported(
    run: RunRecord, names: dict[str, str] | None = None, *, timed: bool = True
) -> RunRecord:
    """The record as if another program had recorded the run: without exact signals."""
    perf = run.perf if timed else run.perf.model_copy(update={"step_time": Distribution()})
    launches = [
        launch
        if timed
        else launch.model_copy(update={"mean_step_time_s": None, "median_step_time_s": None})
        for launch in run.launches
    ]
    return run.model_copy(
        update={
            "source": Source(format="tensorboard", preset="verl", names=names or {}),
            "exact": Exact(),
            "perf": perf,
            "launches": launches,
            "unmeasured": {**run.unmeasured, "exact": "the run was imported"},
        }
    )


def judged(found: Comparison) -> Check:
    """The only check of `metrics:`."""
    (check,) = (check for check in found.checks if check.name.startswith("metrics."))
    return check
