"""Sampler and trainer give the sampled tokens the same log-probabilities, as the framework logs it.

A framework's metric has no measured rounding beside it. So only two things are broken: a first
value that no arithmetic explains, and a growth that stays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from canary.compare.rules.facts import logged
from canary.compare.rules.rule import Answer, answer, holds, not_asked, only_for, rule
from canary.record.types import RunRecord


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


DIFFERENCE = "sampling/sampling_logp_difference/mean"
METRICS = (
    Metric("mismatch", (DIFFERENCE,), "difference of log-probabilities", 0.3, 4.0, 0.05),
    # A Kullback-Leibler divergence grows with the square of a difference.
    Metric("mismatch_kl", (), "divergence", 0.1, 16.0, 0.005),
)
PROBABILITY_ERRORS = ("token_mult_prob_error",)
"""Ends of names of metrics that are 1 without a mismatch (NeMo-RL)."""
STALE = "staleness"
"""A metric of frameworks that sample with older weights on purpose."""
LATE = "the framework samples with older weights on purpose, as its staleness says"

Points = Sequence[tuple[int, float]]
"""Step and value."""


@rule(
    "sampler_logprobs",
    "sampler and trainer give the sampled tokens the same log-probabilities",
    "the framework logs their difference, and does not sample with older weights on purpose",
    "give the engine the newest weights, and both sides the same temperature, dtype and prompt",
    "https://github.com/huggingface/trl/issues/5312",
)
def sampler_logprobs(record: RunRecord) -> Answer:
    """Look at the first logged value, and whether the metric grows."""
    found = [(x, name, points) for x in METRICS for name, points in _points(record, x) if points]
    if not found:
        return only_for("trainings that log the difference of sampler and trainer")
    late = record.curves.get(STALE)
    if late is not None and any(value > 0 for value in late.values):
        return not_asked(LATE)
    answers = [_judge(*one) for one in found]
    return next((one for one in answers if one.is_against), answers[0])


def _points(record: RunRecord, metric: Metric) -> Iterator[tuple[str, Points]]:
    for name in metric.names:
        values = enumerate(logged(record).get(name, ()), start=1)
        yield name, [(step, value) for step, value in values if value is not None]
    curve = record.curves.get(metric.name)
    if curve is not None:
        names = {} if record.source is None else record.source.names
        name = names.get(metric.name, metric.name)
        offset = 1.0 if name.endswith(PROBABILITY_ERRORS) else 0.0
        values_of = [value - offset for value in curve.values]
        yield name, list(zip(curve.steps, values_of, strict=True))


def _judge(metric: Metric, name: str, points: Points) -> Answer:
    first_step, first = points[0]
    if not abs(first) <= metric.start:
        words = f"{name} begins at {first:.3g}; rounding alone gives a {metric.words} below "
        words = f"{name} is NaN" if math.isnan(first) else f"{words}{metric.start:g}"
        place = f"step {first_step}"
        return answer(words, broken=True, size=first, value=first, place=place)
    limit = max(metric.growth * abs(first), metric.floor)
    over = [math.isnan(value) or abs(value) > limit for _, value in points]
    for at, (step, value) in enumerate(points):
        after = over[at:]
        if over[at] and sum(after) * 2 > len(after):
            words = f"{name} grows from {first:.3g} at step {first_step} to {value:.3g}"
            place = f"step {step}"
            return answer(words, broken=True, size=value, value=value, place=place)
    largest = max((value for _, value in points), key=abs)
    words = f"{name} begins at {first:.3g}, and its largest value is {largest:.3g}"
    return holds(words, value=largest)
