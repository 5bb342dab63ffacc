"""The gates of `metrics:` as checks: against a number, the baseline, or the spread of the stored
runs. Pure.

All gates are one family with one error budget. A judgement that rests on a spread waits for its
share of it (`Pending`).
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

from canary.compare.checks import METRICS, change
from canary.compare.metrics.samples import Samples, samples_of
from canary.compare.metrics.statistic import Bounds, bounds_of
from canary.compare.report import Check, CheckStatus, Moved, Records
from canary.compare.timing import estimate
from canary.compare.timing.estimate import (
    HI_LEVEL,
    Estimate,
    Spread,
    pooled,
    signed_percent,
    unpaired_estimate,
)
from canary.compare.timing.student import t_quantile
from canary.config.metric_gates import MetricGate
from canary.errors import counted

MIN_RUNS = 3
"""Runs with which a spread is known at all."""
OUTLIER_FROM = 6
OUTLIER_LEVEL = 0.001
"""Grubbs' test (Technometrics 11, 1969) at this level leaves one run out."""
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
    current: Records, baseline: Records, gates: Sequence[MetricGate], false_alarms: float
) -> list[Check]:
    """Return one check per gate, in their order.

    `false_alarms`: the probability that any of them fails by its spread if nothing changed.
    """
    found: dict[str, Check | Pending] = {}
    for name, gate in zip(check_names(gates), gates, strict=True):
        samples = samples_of(gate, name, current, baseline)
        found[name] = _judged(samples) if isinstance(samples, Samples) else samples
    pending = {name: one for name, one in found.items() if isinstance(one, Pending)}
    p_values = {name: one.p_value for name, one in pending.items()}
    levels = estimate.holm(p_values, dict.fromkeys(pending, 1.0), false_alarms)
    found |= {name: one.decide(levels[name]) for name, one in pending.items()}
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
    bounds = bounds_of(samples.gate, limit)
    lower = samples.gate.worse == "lower"
    worst = (min if lower else max)(samples.current)
    worst = next(filter(bounds.breaks, samples.current), worst)
    status, aside = _with_spikes(samples, bounds, "fail" if bounds.breaks(worst) else "pass")
    words = f"{samples.title} is {worst:.4g}, limit {limit:.6g}"
    numbers = Moved(baseline=None, current=worst, delta=None, delta_pct=None)
    if samples.baseline:
        numbers = change(statistics.fmean(samples.baseline), worst)
    scale = "x" if samples.gate.of_step is not None else samples.unit
    return samples.check(status, words + aside, **numbers, threshold=limit, scale=scale)


def _with_spikes(samples: Samples, bounds: Bounds, status: CheckStatus) -> tuple[CheckStatus, str]:
    """Return the status, `warn` if only lone steps are beyond the bounds, and words about them."""
    if status != "fail":
        return status, ""
    spikes = samples.spikes(bounds)
    if not spikes:
        return status, ""
    where = ", ".join(map(str, spikes[:3]))
    few = "one step" if len(spikes) == 1 else f"{len(spikes)} steps"
    return "warn", f": only {few} ({where}), and one spike alone does not decide"


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


def _bounds(samples: Samples, centre: float, room: float) -> Bounds:
    """Return the range of values whose change in a bad direction is below `room`."""
    low, high = centre - room, centre + room
    return bounds_of(samples.gate, low if samples.gate.worse == "lower" else high, low)


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
    bounds = _bounds(samples, before, room)
    status, aside = _with_spikes(samples, bounds, "fail" if worse else "pass")
    few = f"{counted(len(samples.baseline), 'run')} of the baseline, {MIN_RUNS} needed"
    words = f"{_change(samples, before)}, limit {percent:g}%{aside}. The spread is not known: {few}"
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
    status, words = estimate.judged(found, alpha, room), _change(samples, before)
    status, aside = _with_spikes(samples, _bounds(samples, before, room), status)
    unit = 100 / abs(before)
    if aside:
        words += f", limit {limit:g}%{aside}"
    else:
        words = estimate.sentence(
            words, status, found, alpha, room, lambda change: sign * unit * change
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
    stored, left_out = without_outlier(samples.baseline)
    known = f"spread of {len(stored)} stored runs"
    found = _worse_by(samples, stored, Spread(statistics.stdev(stored), len(stored) - 1, known))
    return _pending(
        samples, found, lambda alpha: _by_prediction(samples, found, stored, left_out, alpha)
    )


def _by_prediction(
    samples: Samples, found: Estimate, stored: Sequence[float], left_out: float | None, alpha: float
) -> Check:
    """Judge by the range of a new run. Nothing nearer than the farthest stored run is beyond it, if
    the runs have heavier tails than a normal's."""
    after, centre = statistics.fmean(samples.current), statistics.fmean(stored)
    farthest = max(_sign(samples, centre) * (value - centre) for value in stored)
    room = max(found.visible(alpha), farthest)
    low, high = centre - room, centre + room
    bounds = _bounds(samples, centre, room)
    status, aside = _with_spikes(samples, bounds, "fail" if found.change > room else "pass")
    words = f"{samples.title} is {after:.4g}, {len(stored)} stored runs predict "
    words += {
        "higher": f"at most {high:.4g}",
        "lower": f"at least {low:.4g}",
        "both": f"{low:.4g} to {high:.4g}",
    }[str(samples.gate.worse)]
    if left_out is not None:
        aside += f". Left out, because it is far from all others: a run with {left_out:.4g}"
    percent = 100 / abs(centre) if centre else 1.0
    return samples.check(
        status,
        words + aside,
        **change(centre, after),
        **_interval(samples, found, centre, alpha),
        threshold=_signed(samples, room * percent),
        detectable=_signed(samples, found.detectable(alpha) * percent),
        noise=found.spread.source,
    )


def without_outlier(values: Sequence[float]) -> tuple[list[float], float | None]:
    """Return the values without the one that no normal sample of this size would have, if any."""
    kept, count = list(values), len(values)
    sd = statistics.stdev(kept) if count >= OUTLIER_FROM else 0.0
    if not sd:
        return kept, None
    mean = statistics.fmean(kept)
    far = max(kept, key=lambda value: abs(value - mean))
    t = t_quantile(1 - OUTLIER_LEVEL / (2 * count), count - 2)
    critical = (count - 1) / math.sqrt(count) * math.sqrt(t * t / (count - 2 + t * t))
    if abs(far - mean) / sd <= critical:
        return kept, None
    kept.remove(far)
    return kept, far
