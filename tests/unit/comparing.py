"""Full records with chosen step times, made from real ones, for the comparison's tests."""

from __future__ import annotations

import math
import pickle
import statistics
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from statistics import NormalDist
from typing import Any

from pydantic import BaseModel

from canary.compare.report import Comparison
from canary.compare.stats import load_metrics
from canary.compare.timing.noise import MetricNoise, NoiseModel
from canary.record import jsonio
from canary.record.types import Distribution, Growth, Launch, RunRecord

EXAMPLES = Path(__file__).parents[2] / "baselines" / "examples"
START = datetime(2026, 1, 1, tzinfo=UTC)
GPU = {"name": "Simulated 80GB", "memory_bytes": 80 << 30, "mig": False, "index": 0, "uuid": "x"}
MB = 2**20


@lru_cache
def _loaded(kind: str) -> RunRecord:
    return load_metrics(EXAMPLES / f"{kind}_smoke.json")


def example(kind: str = "sft") -> RunRecord:
    """A real record, to be changed at will."""
    return copied(_loaded(kind))


def copied(whole: RunRecord) -> RunRecord:
    """A deep copy, in a third of the time that `model_copy` takes."""
    made: RunRecord = pickle.loads(pickle.dumps(whole, pickle.HIGHEST_PROTOCOL))
    return made


def step_time(median_s: float, mean_s: float, count: int = 90) -> Distribution:
    """A distribution that says no more than its centre."""
    return Distribution(
        count=count,
        mean=mean_s,
        median=median_s,
        p50=median_s,
        p95=1.2 * mean_s,
        p99=1.3 * mean_s,
        min=0.8 * median_s,
        max=1.4 * mean_s,
        std=0.1 * mean_s,
    )


def record(
    number: int = 0,
    median_s: float = 0.1,
    *,
    mean_s: float | None = None,
    kind: str = "sft",
    memory_mb: float = 600.0,
    cpu_s: float | None = None,
    run_id: str | None = None,
    of: RunRecord | None = None,
) -> RunRecord:
    """The example of a trainer (or `of`) as a run of one launch with this step time, and so many
    CPU seconds per step, of which it waited for none; `number` orders runs in time."""
    base = example(kind) if of is None else copied(of)
    mean = median_s if mean_s is None else mean_s
    steps = len(base.stability.loss_values)
    tokens = base.tokens["input_tokens"] / steps
    launch = Launch(
        index=0,
        status="completed",
        steps=steps,
        mean_step_time_s=mean,
        median_step_time_s=median_s,
        tokens_per_sec=tokens / mean,
        cpu_s_per_step=cpu_s,
        on_core_step_time_s=cpu_s,
    )
    perf = base.perf.model_copy(
        update={
            "step_time": step_time(median_s, mean),
            "approx_tokens_per_sec": tokens / mean,
            "max_mem_mb": memory_mb,
        }
    )
    started = START + timedelta(seconds=number)
    return base.model_copy(
        update={
            "run_id": run_id or f"run-{number:05d}",
            "timestamp": started.isoformat(timespec="seconds"),
            "perf": perf,
            "launches": [launch],
        }
    )


def records(
    times: Sequence[float], first: int = 0, *, memory_sd: float = 0.0, **rest: Any
) -> list[RunRecord]:
    """A run for each step time, numbered from `first` on."""
    memory = scatter(len(times), memory_sd)
    return [
        record(first + place, time, memory_mb=600.0 * memory[place], **rest)
        for place, time in enumerate(times)
    ]


def scatter(count: int, sd: float) -> list[float]:
    """Factors whose logarithms have mean 0 and exactly this standard deviation, in no order."""
    if count < 2:
        return [1.0] * count
    quantiles = [NormalDist().inv_cdf((place + 0.5) / count) for place in range(count)]
    quantiles = quantiles[1::2] + quantiles[0::2]
    scale = statistics.stdev(quantiles)
    return [math.exp(sd * quantile / scale) for quantile in quantiles]


def history(sd: float = 0.01, count: int = 20, **rest: Any) -> list[RunRecord]:
    """Runs of 0.1 s a step that scatter by `sd`."""
    return records([0.1 * factor for factor in scatter(count, sd)], **rest)


def pairs(
    count: int, effect: float = 0.0, *, sd: float = 0.005, drift: float = 0.2
) -> tuple[list[RunRecord], list[RunRecord]]:
    """(current, baseline): the machine drifts by `drift` from pair to pair, both sides of it alike;
    the pairs' differences scatter by `sd` about `effect`."""
    machine, own = scatter(count, drift), scatter(count, sd)
    baseline = [0.1 * factor for factor in machine]
    current = [
        (1 + effect) * time * factor for time, factor in zip(baseline, reversed(own), strict=True)
    ]
    return records(current, 1000), records(baseline)


def noise_model(sd: float = 0.01, *, pair_sd: float | None = None, **rest: Any) -> NoiseModel:
    """As calibrated over 31 runs, the same for every step time; memory repeats to 0.1%."""
    times = MetricNoise(run_sd=sd, run_df=30, pair_sd=pair_sd, pair_df=pair_sd and 15)
    return NoiseModel(
        canary="sft_smoke",
        machine_key="cpu",
        created="2026-01-01T00:00:00+00:00",
        runs=31,
        metrics={
            "step_time_median": times,
            "step_time_mean": times,
            "max_memory": MetricNoise(run_sd=0.001, run_df=30, pair_sd=0.001, pair_df=15),
        },
        **rest,
    )


def altered(whole: RunRecord, *path: str | int, to: Any) -> RunRecord:
    """A copy in which one place, through sections, keys and positions, holds something else; "nan"
    and its like are the numbers that a reader makes of them."""
    made = copied(whole)
    to = [jsonio.number(value) for value in to] if isinstance(to, list) else jsonio.number(to)
    *places, last = path
    inner: Any = made
    for place in places:
        inner = getattr(inner, str(place)) if isinstance(inner, BaseModel) else inner[place]
    if isinstance(inner, BaseModel):
        setattr(inner, str(last), to)
    else:
        inner[last] = to
    return made


def trained(whole: RunRecord, steps: int) -> RunRecord:
    """As if each of its launches had trained so many steps."""
    made = copied(whole)
    for launch in made.launches:
        launch.steps = steps
    return made


def plain(whole: RunRecord) -> Any:
    """Its `exact` as data that may hold anything, to compute with and to change at will."""
    return whole.exact


def on_gpu(
    whole: RunRecord, *, name: str = "Simulated 80GB", utilization: float = 90.0
) -> RunRecord:
    """The record as if of a GPU, so that device memory and utilisation are there."""
    gpu = {**GPU, "name": name}
    env = whole.env | {"gpus": [gpu], "device": {"type": "cuda", "name": name}}
    perf = whole.perf.model_copy(
        update={"max_mem_kind": "device", "gpu_utilization_avg": utilization}
    )
    return whole.model_copy(update={"env": env, "perf": perf})


def growing(whole: RunRecord, mb_per_step: float, half: float, kind: str = "device") -> RunRecord:
    """The record with a slope of memory and half of its interval, in MB a step."""
    growth = Growth(
        kind=kind,  # type: ignore[arg-type]
        bytes_per_step=mb_per_step * MB,
        low=(mb_per_step - half) * MB,
        high=(mb_per_step + half) * MB,
        steps=90,
    )
    return altered(whole, "memory", "growth", to=growth)


def committed(whole: RunRecord, sha: str = "a" * 40, *, dirty: bool = False) -> RunRecord:
    """The record as of a commit."""
    return whole.model_copy(update={"git": {"sha": sha, "dirty": dirty}})


def crashed(whole: RunRecord, status: str = "failed", reason: str = "it broke") -> RunRecord:
    """The record as of a run that ended so."""
    return whole.model_copy(update={"status": status, "reason": reason})


def statuses(found: Comparison) -> dict[str, str]:
    """Status of every check, by name."""
    return {check.name: check.status for check in found.checks}


def write(path: Path, whole: RunRecord) -> Path:
    """The record as a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(jsonio.dumps(whole.model_dump()), encoding="utf-8")
    return path
