"""Detectors of change points: plain thresholds, apache-otava if it is installed, and ours."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from bench.histories import RUNS, Array, Facts
from canary.baseline.comparability import machine_key
from canary.record.types import Distribution, Launch, Perf, RunRecord
from canary.trends.history import trends_of_stored
from canary.trends.runs import run_of


class Found(NamedTuple):
    """A change point."""

    place: int
    percent: float
    standing: str = "confirmed"
    """As in `canary.trends.model`."""
    machine: tuple[str, ...] = ()
    """The facts that are named as suspects, the first first."""


Detector = Callable[[Array, Sequence[Facts]], Sequence[Found]]


def on_previous(values: Array, facts: Sequence[Facts], limit: float) -> list[Found]:
    """Compare each run with the run before; `limit` in percent."""
    changes = 100 * (values[1:] / values[:-1] - 1)
    return [Found(int(i) + 1, float(changes[i])) for i in np.flatnonzero(abs(changes) > limit)]


def on_mean(values: Array, facts: Sequence[Facts], limit: float, width: int = 5) -> list[Found]:
    """Compare each run with the mean of the last five; `limit` in percent."""
    if len(values) <= width:
        return []
    means = np.lib.stride_tricks.sliding_window_view(values, width)[:-1].mean(axis=1)
    changes = 100 * (values[width:] / means - 1)
    return [Found(int(i) + width, float(changes[i])) for i in np.flatnonzero(abs(changes) > limit)]


def otava(values: Array, facts: Sequence[Facts]) -> list[Found]:
    """Ask apache-otava with its defaults: a window of 50, p below 0.001, any magnitude."""
    module = importlib.import_module("otava.series")
    numbers = list(range(len(values)))
    metrics = {"ms": module.Metric(direction=-1)}
    series = module.Series("history", None, numbers, metrics, {"ms": values.tolist()}, {})
    points = series.analyze(module.AnalysisOptions()).change_points["ms"]
    return [Found(int(it.index), float(it.forward_change_percent())) for it in points]


def ours(values: Array, facts: Sequence[Facts]) -> list[Found]:
    """Ask `canary.trends`. It has only the step time to judge, with the whole error budget."""
    records = [record(place, float(value), facts[place]) for place, value in enumerate(values)]
    stored = [run_of(one) for one in reversed(records)]
    trends = trends_of_stored(stored, None, records[-1].name, machine_key(records[-1]), [])
    series = next(it for it in trends.series if it.metric == "step_time_median")
    at = [int(point.run_id.removeprefix("run-")) for point in series.points]
    return [
        Found(at[it.place], it.percent, it.standing, tuple(fact.name for fact in it.machine))
        for it in series.changes
    ]


@lru_cache(maxsize=RUNS)
def _bare(place: int) -> RunRecord:
    return RunRecord(
        run_id=f"run-{place:03d}",
        name="simulated",
        timestamp=f"2026-{1 + place // 28:02d}-{1 + place % 28:02d}T06:00:00+00:00",
        status="completed",
        git={"sha": hashlib.sha1(str(place).encode()).hexdigest(), "dirty": False},
        config={"training_type": "sft"},
    )


def record(place: int, step_time_ms: float, facts: Facts) -> RunRecord:
    """Return a run on a GPU, so that another `cpu` is no other machine, with a step time alone."""
    seconds = step_time_ms / 1000
    spread = dict.fromkeys(("mean", "median", "p50", "p95", "p99", "min", "max"), seconds)
    launch = Launch(
        index=1,
        status="completed",
        steps=100,
        mean_step_time_s=seconds,
        median_step_time_s=seconds,
    )
    gpu = {"name": "Simulated", "memory_bytes": 80 << 30, "mig": False, "index": 0, "uuid": "x"}
    env = {"device": {"type": "cuda", "name": "Simulated"}, "gpus": [gpu], **facts}
    perf = Perf(step_time=Distribution(count=100, std=0.0, **spread))
    return _bare(place).model_copy(update={"env": env, "perf": perf, "launches": [launch]})


DETECTORS: dict[str, Detector] = {
    "previous run, 5%": partial(on_previous, limit=5.0),
    "previous run, 10%": partial(on_previous, limit=10.0),
    "mean of last 5, 5%": partial(on_mean, limit=5.0),
    "mean of last 5, 10%": partial(on_mean, limit=10.0),
    "apache-otava": otava,
    "canary": ours,
}
