"""The gates of `metrics:` as checks: against a number, the baseline, or the spread of the stored
runs. Pure.

All gates are one family with one error budget. A judgement that rests on a spread waits for its
share of it (`Pending`).
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

from canary.compare.checks import METRICS, change
from canary.compare.metrics.samples import Samples, samples_of
from canary.compare.report import Check, CheckStatus, Moved
from canary.compare.timing import estimate
from canary.compare.timing.estimate import (
    HI_LEVEL,
    Estimate,
    Spread,
    pooled,
    signed_percent,
    unpaired_estimate,
)
from canary.config.metric_gates import MetricGate
from canary.errors import counted
from canary.record.types import RunRecord

MIN_RUNS = 3
"""Runs with which a spread is known at all."""
FLOOR = 1e-9
"""Smallest credible spread, as a share of the largest value: the grain of a float32 mean."""
SMALLEST = 1e-300
"""Smallest spread, so that one can divide by it."""
NEAR_ZERO = 1e-12
"""A baseline below this share of its largest value is zero: percentages of it mean nothing."""


class _Interval(TypedDict):
    interval: tuple[float, float]
    scale: str


@dataclass(frozen=True)
class Pending:
    """A judgement that needs an error level."""

    p_value: float
    """Of the claim that the metric got worse, if nothing changed."""
    decide: Callable[[float], Check]
    """Returns the check at an error level."""


def metric_gate_checks(
    current: Sequence[RunRecord],
    baseline: Sequence[RunRecord],
    gates: Sequence[MetricGate],
    false_alarms: float,
) -> list[Check]:
    """Return one check per gate, in their order.

    `false_alarms`: the probability that any of them fails by its spread if nothing changed. Holm's
    procedure shares it (Scandinavian Journal of Statistics 6, 1979).
    """
    found: dict[str, Check | Pending] = {}
    for name, gate in zip(check_names(gates), gates, strict=True):
        samples = samples_of(gate, name, current, baseline)
        found[name] = _judged(samples) if isinstance(samples, Samples) else samples
    pending = {name: one for name, one in found.items() if isinstance(one, Pending)}
    left = len(pending)
    for name in sorted(pending, key=lambda name: pending[name].p_value):
        alpha = false_alarms / left
        found[name] = pending[name].decide(alpha)
        if pending[name].p_value < alpha:
            left -= 1
    return [one for one in found.values() if isinstance(one, Check)]


def check_names(gates: Sequence[MetricGate]) -> list[str]:
    """Return each gate's name as a check; a number follows the second gate of an equal name."""
    seen: Counter[str] = Counter()
    names = []
    for gate in gates:
        name = f"{METRICS}.{gate.name}.{gate.statistic}"
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}.{seen[name]}")
    return names


def _judged(samples: Samples) -> Check | Pending:
    """Judge by the gate's kind of limit."""
    gate = samples.gate
    if isinstance(gate.limit, float):
        return against_number(samples, gate.limit)
    if gate.percent is not None:
        return against_baseline(samples, gate.percent)
    return against_history(samples)


def against_number(samples: Samples, limit: float) -> Check:
    """Judge the worst current run against a number."""
    worse = samples.gate.worse

    def breaks(value: float) -> bool:
        return (worse != "lower" and value > limit) or (worse != "higher" and value < limit)

    worst = (min if worse == "lower" else max)(samples.current)
    worst = next(filter(breaks, samples.current), worst)
    words = f"{samples.title} is {worst:.4g}, limit {limit:.6g}"
    numbers = Moved(baseline=None, current=worst, delta=None, delta_pct=None)
    if samples.baseline:
        numbers = change(statistics.fmean(samples.baseline), worst)
    status: CheckStatus = "fail" if breaks(worst) else "pass"
    return samples.check(status, words, **numbers, threshold=limit, scale=samples.unit)


def _sign(samples: Samples, centre: float) -> float:
    """Return 1 if up is worse, -1 if down is; for both directions that of the change."""
    if samples.gate.worse == "both":
        return 1.0 if statistics.fmean(samples.current) >= centre else -1.0
    return 1.0 if samples.gate.worse == "higher" else -1.0


def _worse_by(samples: Samples, stored: Sequence[float], spread: Spread) -> Estimate:
    """Return the change of the mean in the bad direction; `stored`: values of the baseline."""
    sd = max(spread.sd, FLOOR * max(map(abs, stored)), SMALLEST)
    found = unpaired_estimate(samples.current, stored, replace(spread, sd=sd))
    return replace(found, change=_sign(samples, statistics.fmean(stored)) * found.change)


def _pending(samples: Samples, found: Estimate, decide: Callable[[float], Check]) -> Pending:
    """Return a judgement of an estimate; `decide`: at the error level of one direction."""
    if samples.gate.worse == "both":
        return Pending(min(1.0, 2 * found.p_value()), lambda alpha: decide(alpha / 2))
    return Pending(found.p_value(), decide)


def against_baseline(samples: Samples, percent: float) -> Check | Pending:
    """Judge the change of the mean in percent of the baseline's mean, by its interval.

    With fewer than three runs of the baseline its spread is not known: the estimate decides."""
    before = statistics.fmean(samples.baseline)
    if abs(before) <= NEAR_ZERO * max(map(abs, (*samples.baseline, *samples.current))):
        words = f"{samples.title} is 0 on the baseline: set a number or history as its limit"
        return samples.check("inconclusive", words)
    room = abs(before) * percent / 100
    spread = pooled(samples.current, samples.baseline)
    if len(samples.baseline) < MIN_RUNS or spread is None:
        return _by_estimate(samples, before, room, percent)
    found = _worse_by(samples, samples.baseline, spread)
    return _pending(samples, found, lambda alpha: _by_interval(samples, found, before, room, alpha))


def _by_estimate(samples: Samples, before: float, room: float, percent: float) -> Check:
    after = statistics.fmean(samples.current)
    worse = _sign(samples, before) * (after - before) > room
    status: CheckStatus = "fail" if worse else "pass"
    few = f"{counted(len(samples.baseline), 'run')} of the baseline, {MIN_RUNS} needed"
    words = f"{_change(samples, before)}, limit {percent:g}%. The spread is not known: {few}"
    numbers = change(before, after)
    return samples.check(status, words, **numbers, threshold=_signed(samples, percent))


def _change(samples: Samples, before: float) -> str:
    after = statistics.fmean(samples.current)
    words = f"{samples.title} {before:.4g} -> {after:.4g}"
    return f"{words} ({signed_percent(100 * (after - before) / abs(before))})" if before else words


def _signed(samples: Samples, value: float) -> float:
    """Return a limit with the sign of the bad direction."""
    return -value if samples.gate.worse == "lower" else value


def _by_interval(
    samples: Samples, found: Estimate, before: float, room: float, alpha: float
) -> Check:
    """Judge a change by its interval. A change in the bad direction is positive."""
    limit, sign = samples.gate.percent or 0.0, _sign(samples, before)
    status, unit = estimate.judged(found, alpha, room), 100 / abs(before)
    words = estimate.sentence(
        _change(samples, before), status, found, alpha, room, lambda moved: sign * unit * moved
    )
    numbers = change(before, statistics.fmean(samples.current))
    return samples.check(
        status,
        words,
        **numbers,
        **_interval(samples, found, before, alpha),
        threshold=_signed(samples, limit),
        detectable=_signed(samples, unit * found.detectable(alpha)),
        noise=found.spread.source,
    )


def _interval(samples: Samples, found: Estimate, base: float, alpha: float) -> _Interval:
    """Return the interval of the change, in percent of `base`; in the metric's unit if it is 0."""
    sign = _sign(samples, base)
    unit = 100 / abs(base) if base else 1.0
    ends = sorted(sign * unit * end for end in (found.lower(alpha), found.upper(HI_LEVEL)))
    return _Interval(interval=(ends[0], ends[1]), scale="%" if base else samples.unit)


def against_history(samples: Samples) -> Check | Pending:
    """Judge against what the stored runs predict for a new run."""
    count = len(samples.baseline)
    if count < MIN_RUNS:
        few = counted(count, "stored run")
        words = f"{samples.title}: {few} cannot show a spread, {MIN_RUNS} are needed"
        return samples.check("inconclusive", words)
    stored = samples.baseline
    known = f"spread of {count} stored runs"
    found = _worse_by(samples, stored, Spread(statistics.stdev(stored), count - 1, known))
    return _pending(samples, found, lambda alpha: _by_prediction(samples, found, alpha))


def _by_prediction(samples: Samples, found: Estimate, alpha: float) -> Check:
    """Judge by the range of a new run. Nothing nearer than the farthest stored run is beyond it, if
    the runs have heavier tails than a normal's."""
    stored = samples.baseline
    after, centre = statistics.fmean(samples.current), statistics.fmean(stored)
    farthest = max(_sign(samples, centre) * (value - centre) for value in stored)
    room = max(found.visible(alpha), farthest)
    low, high = centre - room, centre + room
    status: CheckStatus = "fail" if found.change > room else "pass"
    words = f"{samples.title} is {after:.4g}, {len(stored)} stored runs predict "
    words += {
        "higher": f"at most {high:.4g}",
        "lower": f"at least {low:.4g}",
        "both": f"{low:.4g} to {high:.4g}",
    }[str(samples.gate.worse)]
    percent = 100 / abs(centre) if centre else 1.0
    return samples.check(
        status,
        words,
        **change(centre, after),
        **_interval(samples, found, centre, alpha),
        threshold=_signed(samples, room * percent),
        detectable=_signed(samples, found.detectable(alpha) * percent),
        noise=found.spread.source,
    )
