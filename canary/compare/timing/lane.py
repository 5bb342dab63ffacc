"""The timing lane: noisy metrics, each judged with one interval.

Each launch gives one number per metric. The gates share one budget of false alarms by a weighted
Holm procedure (Holm 1979). Most of it goes to the median step time, the steadiest number; the rest
to changes that the median cannot see.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from canary.compare.report import Check, Comparison, Records
from canary.compare.thresholds import Thresholds
from canary.compare.timing.estimate import (
    Estimate,
    Spread,
    holm,
    larger,
    paired_estimate,
    pooled,
    spread_of,
    unpaired_estimate,
)
from canary.compare.timing.noise import NoiseModel
from canary.record.types import RunRecord

FAMILY_BUDGET = 0.005
"""Probability that any gate raises a false alarm if nothing changed."""
DECISION_BUDGETS = {3: 0.001, 5: 0.002, 8: 0.002}
"""Part of the budget spent at each decision of a sequential comparison, by number of pairs. By
Bonferroni's bound, they add up to that of the family."""
DECISIONS = tuple(DECISION_BUDGETS)
NO_MODEL_SHARE = 0.8
"""Share of the budget used if the spread comes only from the runs compared. Student's t assumes
that they are normal; the rest of the budget covers the error of that assumption."""

Metric = Literal[
    "step_time_median",
    "step_time_mean",
    "cpu_time",
    "max_memory",
    "step_time_drift",
    "cpu_time_drift",
    "on_core_step_time",
]

GATE_WEIGHTS: dict[Metric, float] = {
    "step_time_median": 0.75,
    "step_time_mean": 0.15,
    "cpu_time": 0.75,
    "max_memory": 0.05,
    "step_time_drift": 0.05,
    "cpu_time_drift": 0.05,
}
"""Parts of the budget, relative to the sum over the gates present; the sum is 1 without CPU time.
Step time on a free core is no gate: it bounds what a noisy step time can hide."""

DRIFTS: dict[Metric, Metric] = {"step_time_drift": "step_time_median", "cpu_time_drift": "cpu_time"}
"""The metric of each drift."""

FLOORS: dict[str, float] = {
    "step_time": 0.002,
    "cpu_time": 0.003,
    "device_memory": 0.0005,
    "resident_memory": 0.003,
}
"""Smallest credible spreads, because clocks, allocators and the page cache are coarse."""

PRIORS: dict[str, float] = {
    "step_time_gpu": 0.10,
    "step_time_cpu": 0.25,
    "cpu_time": 0.20,
    "device_memory": 0.002,
    "resident_memory": 0.03,
}
"""Assumed spread of one launch if fewer than two degrees of freedom were measured; wide on purpose.
Two launches differ by 0.5% on a quiet GPU, 5% on a shared one, and 10 to 50% on a loaded CPU. CPU
time differs by 5 to 20%, or twice as much if another guest of the host is busy."""
PRIOR_SOURCE = "assumed, because it was not measured; therefore wide"

ADAPTIVE_LEAST = 0.02
MIN_DF = 2
PAIRS_ALONE = 5
"""Pairs from which on the spread of their differences is used. With fewer, the spread is that of
both sides about their means, which has twice the degrees of freedom."""
UNHEALTHY = 3.0
"""Timing is not judged if the baseline's spread is so many times that of the noise model."""
LARGEST = 700.0
"""Largest logarithm used; its exponential is still finite."""


@dataclass(frozen=True)
class Samples:
    """Logarithms of one metric on both sides, one value per launch; equal lengths if paired."""

    metric: Metric
    current: tuple[float, ...]
    baseline: tuple[float, ...]
    kind: str
    """What is measured, a key of FLOORS."""
    unit: str

    def scale(self, logs: Sequence[float]) -> float:
        """Return the geometric mean, in the metric's unit."""
        return math.exp(min(statistics.fmean(logs), LARGEST))


@dataclass(frozen=True)
class Gate:
    """One metric's estimate, and the error level that Holm's procedure gives it."""

    samples: Samples
    estimate: Estimate
    alpha: float


OF_LAUNCH: dict[Metric, str] = {
    "step_time_median": "median_step_time_s",
    "step_time_mean": "mean_step_time_s",
    "cpu_time": "cpu_s_per_step",
    "on_core_step_time": "on_core_step_time_s",
}
"""Fields of a launch, in seconds per step."""


def launch_seconds(record: RunRecord, metric: Metric) -> list[float]:
    """Return seconds per step of each completed launch; step times may be the record's."""
    attribute = OF_LAUNCH[metric]
    values = [
        getattr(launch, attribute) for launch in record.launches if launch.status == "completed"
    ]
    found = [float(value) for value in values if value is not None]
    if metric not in ("step_time_median", "step_time_mean"):
        return [seconds for seconds in found if seconds > 0]
    whole = record.perf.step_time
    if found or not whole.count:
        return found
    return [whole.mean if metric == "step_time_mean" else whole.median]


def tokens_per_step(record: RunRecord, kind: str) -> float | None:
    """Return tokens of a kind (`input_tokens`) per step of the first launch; None if there are none
    of it (`completion_tokens`, if nothing is generated)."""
    tokens = record.tokens.get(kind)
    launches = record.launches
    steps = launches[0].steps if launches else len(record.stability.loss_values)
    return tokens / steps if tokens and steps else None


def time_samples(metric: Metric, current: Records, baseline: Records) -> Samples:
    """Return log ms per step, or per completion token if the sides generated unequal amounts."""
    lengths = [tokens_per_step(record, "completion_tokens") for record in (*current, *baseline)]
    by_token = all(length is not None for length in lengths) and len(set(lengths)) > 1

    def logs(records: Records) -> tuple[float, ...]:
        values = []
        for record in records:
            unit = (tokens_per_step(record, "completion_tokens") if by_token else None) or 1.0
            values += [math.log(1000 / unit) + math.log(s) for s in launch_seconds(record, metric)]
        return tuple(values)

    unit = "ms/token" if by_token else "ms"
    kind = "step_time" if metric.startswith("step_time") else "cpu_time"
    return Samples(metric, logs(current), logs(baseline), kind, unit)


def estimate(
    samples: Samples,
    paired: bool,
    noise: NoiseModel | None,
    has_gpu: bool,
    history: Sequence[float] | None = None,
) -> Estimate:
    """Estimate the change of one metric, by pairs if `paired`.

    `history`: of a drift, whose baseline is the anchors; its spread is the whole history's."""
    floor = FLOORS[samples.kind]
    metric = DRIFTS.get(samples.metric, samples.metric)
    if paired and history is None and len(samples.current) == len(samples.baseline):
        differences = [c - b for c, b in zip(samples.current, samples.baseline, strict=True)]
        model = noise.pair_spread(metric) if noise else None
        of_pairs = spread_of(differences, "measured in these pairs")
        if model is not None or len(differences) >= PAIRS_ALONE:
            spread = larger(of_pairs, model, math.sqrt(2) * floor)
            assert spread is not None
            return paired_estimate(differences, spread)
    model = noise.run_spread(metric) if noise else None
    measured = pooled(samples.current, samples.baseline if history is None else history)
    if model is None and (measured is None or measured.df < MIN_DF):
        measured = pooled(samples.current, samples.baseline)
        kind = f"step_time_{'gpu' if has_gpu else 'cpu'}"
        sd = PRIORS[kind if samples.kind == "step_time" else samples.kind]
        prior = Spread(sd, math.inf, PRIOR_SOURCE, prior=True)
        if measured is None or (measured.df < MIN_DF and measured.sd < sd):
            measured = prior
    spread = larger(measured, model, floor)
    assert spread is not None
    return unpaired_estimate(samples.current, samples.baseline, spread)


def gates_of(estimates: Mapping[Metric, tuple[Samples, Estimate]], budget: float) -> list[Gate]:
    """Give each gate its share of the budget."""
    p_values = {metric: found.p_value() for metric, (_, found) in estimates.items()}
    levels = holm(p_values, {metric: GATE_WEIGHTS[metric] for metric in estimates}, budget)
    return [Gate(*estimates[metric], alpha) for metric, alpha in levels.items()]


def runner_unhealthy(samples: Samples, noise: NoiseModel | None) -> float | None:
    """Return the baseline's spread over the noise model's if it is too large, else None."""
    model = noise.run_spread(samples.metric) if noise else None
    measured = spread_of(samples.baseline, "")
    if model is None or measured is None:
        return None
    ratio = measured.sd / max(model.sd, FLOORS[samples.kind])
    return ratio if ratio > UNHEALTHY else None


def tolerance(gate: Gate, thresholds: Thresholds, percent: float) -> tuple[float, float]:
    """Return (d for `pass`, d for `fail`) as log ratios, for a tolerance of `percent`.

    `adaptive` tightens d to the smallest detectable change. Noise never loosens the tolerance, so
    noise that hides a larger change is no pass.
    """
    fixed = math.log1p(percent / 100)
    if thresholds.sensitivity == "fixed":
        return fixed, fixed
    least = math.log1p(ADAPTIVE_LEAST)
    d = min(max(least, gate.estimate.detectable(gate.alpha)), max(least, fixed))
    return d, max(math.log1p(0.01), d / 2)


def decision_budget(pairs: int) -> float:
    """Return the error budget of the decision after so many pairs; all of it for a fixed number."""
    return DECISION_BUDGETS.get(pairs, FAMILY_BUDGET)


def is_settled(found: Comparison) -> bool:
    """Return whether more pairs would change nothing."""
    return found.verdict != "inconclusive"


def exact_failures(found: Comparison) -> list[Check]:
    """Return the failed checks without noise, which more runs would not change."""
    return [c for c in found.checks if c.failed and c.lane in ("exact", "rule")]


def decided_by_exact(found: Comparison, base: Records) -> bool:
    """Return whether an exact failure comes from the code, not from runs that do not repeat: two
    looks at the base show that."""
    looks = sum(bool(record.exact) + len(record.further_looks) for record in base)
    return bool(exact_failures(found)) and looks > 1
