"""Judges the mismatch of sampler and trainer that a framework logs itself.

A framework's metric has no measured rounding beside it. So only two things are broken: a first
value that no arithmetic explains, and a growth that stays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from canary.record.types import RunRecord
from canary.relations import RELATIONS
from canary.relations.relation import Outcome, broken, holds, outcome

RELATION = RELATIONS["sampler_logprobs"]


@dataclass(frozen=True)
class Metric:
    """One way to log a mismatch."""

    name: str
    """The canary's name for it, as in the presets."""
    names: tuple[str, ...]
    """Names in trainers that are watched inside."""
    words: str
    start: float
    """The largest first value: bfloat16 and mixtures of experts stay below a third of it."""
    growth: float
    """How much larger than the first value a later one may be."""
    floor: float
    """Growth up to this is rounding."""


# A Kullback-Leibler divergence grows with the square of a difference.
METRICS = (
    Metric(
        "mismatch",
        ("sampling/sampling_logp_difference/mean",),
        "difference of log-probabilities",
        start=0.3,
        growth=4.0,
        floor=0.05,
    ),
    Metric("mismatch_kl", (), "divergence", start=0.1, growth=16.0, floor=0.005),
)
PROBABILITY_ERRORS = ("token_mult_prob_error",)
"""Ends of names of metrics that are 1 without a mismatch (NeMo-RL)."""
STALE = "staleness"
"""A metric of frameworks that sample with older weights on purpose."""

LATE = "the framework samples with older weights on purpose, as its staleness says"

Points = Sequence[tuple[int, float]]
"""Step and value."""


def judged(record: RunRecord) -> Outcome | None:
    """Return what the logged mismatch says; None without such a metric."""
    found = [
        (metric, name, points)
        for metric in METRICS
        for name, points in _points(record, metric)
        if points
    ]
    if not found:
        return None
    if _samples_late(record):
        return outcome(RELATION.id, "not applicable", LATE)
    outcomes = [_judge(*one) for one in found]
    return next((one for one in outcomes if one["status"] == "broken"), outcomes[0])


def _points(record: RunRecord, metric: Metric) -> Iterator[tuple[str, Points]]:
    logged = record.exact.get("trajectory", {}).get("rl", {})
    for name in metric.names:
        values = enumerate(logged.get(name, ()), start=1)
        yield name, [(step, value) for step, value in values if value is not None]
    curve = record.curves.get(metric.name)
    if curve is not None:
        names = {} if record.source is None else record.source.names
        name = names.get(metric.name, metric.name)
        offset = 1.0 if name.endswith(PROBABILITY_ERRORS) else 0.0
        values_of = [value - offset for value in curve.values]
        yield name, list(zip(curve.steps, values_of, strict=True))


def _samples_late(record: RunRecord) -> bool:
    curve = record.curves.get(STALE)
    return curve is not None and any(value > 0 for value in curve.values)


def _judge(metric: Metric, name: str, points: Points) -> Outcome:
    first_step, first = points[0]
    if not abs(first) <= metric.start:
        return broken(
            RELATION,
            f"{name} begins at {first:.3g}; rounding alone gives a {metric.words} below "
            f"{metric.start:g}",
            f"step {first_step}",
            (first, metric.start),
        )
    limit = max(metric.growth * abs(first), metric.floor)
    over = [math.isnan(value) or abs(value) > limit for _, value in points]
    for place, (step, value) in enumerate(points):
        after = over[place:]
        if over[place] and sum(after) * 2 > len(after):
            return broken(
                RELATION,
                f"{name} grows from {first:.3g} at step {first_step} to {value:.3g} at step {step}",
                f"step {step}",
                (first, value),
            )
    largest = max(abs(value) for _, value in points)
    return holds(RELATION, f"{name} begins at {first:.3g}, and its largest value is {largest:.3g}")
