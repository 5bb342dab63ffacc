"""The gates of `metrics:` as checks: one family with one error budget. Pure."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from canary.compare.checks import METRICS
from canary.compare.metrics.judging import Pending, judged
from canary.compare.metrics.samples import Samples, samples_of
from canary.compare.metrics.statistic import usable
from canary.compare.metrics.steps import by_step
from canary.compare.report import Check
from canary.config.metric_gates import OF_SINGLE_STEPS, MetricGate
from canary.record.types import RunRecord

AT_LEAST = 3
"""Values in a row; fewer are chance."""


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
    asked: dict[str, Samples] = {}
    for name, gate in zip(check_names(gates), gates, strict=True):
        samples = samples_of(gate, name, current, baseline)
        if isinstance(samples, Samples):
            asked[name] = samples
            found[name] = _judged(samples)
        else:
            found[name] = samples
    pending = {name: one for name, one in found.items() if isinstance(one, Pending)}
    decided = {}
    left = len(pending)
    for name in sorted(pending, key=lambda name: pending[name].p_value):
        alpha = false_alarms / left
        decided[name] = pending[name].decide(alpha)
        if pending[name].p_value < alpha:
            left -= 1
    checks = [one if isinstance(one, Check) else decided[name] for name, one in found.items()]
    return [_with_departure(check, asked.get(check.name)) for check in checks]


def _with_departure(check: Check, samples: Samples | None) -> Check:
    """Say where a failed curve leaves the baseline's range: look there for the cause."""
    if check.status != "fail" or samples is None or samples.gate.statistic in OF_SINGLE_STEPS:
        return check
    return replace(check, message=check.message + departure(samples))


def _judged(samples: Samples) -> Check | Pending:
    gate = samples.gate
    if gate.statistic == "steps" and gate.needs_baseline:
        return by_step(samples, gate.percent)
    return judged(samples)


def check_names(gates: Sequence[MetricGate]) -> list[str]:
    """Return each gate's name as a check; a number follows the second gate of an equal name."""
    seen: Counter[str] = Counter()
    names = []
    for gate in gates:
        name = f"{METRICS}.{gate.name}.{gate.statistic}"
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}.{seen[name]}")
    return names


def departure(samples: Samples) -> str:
    """Return the end of a sentence that names the step; empty if there is none."""
    now, before = (
        [dict(zip(curve.steps, curve.values, strict=True)) for curve in side]
        for side in samples.curves
    )
    if len(before) < AT_LEAST or samples.gate.worse == "both":
        return ""
    lower = samples.gate.worse == "lower"
    stretch: list[int] = []
    for step in sorted(set(now[0]).intersection(*now[1:])):
        stored = [curve[step] for curve in before if usable(curve.get(step, math.nan))]
        if len(stored) < AT_LEAST:
            continue
        values = [curve[step] for curve in now]
        value = statistics.fmean(values) if all(map(usable, values)) else math.nan
        stretch = [*stretch, step] if _beyond(value, stored, lower=lower) else []
        if len(stretch) == AT_LEAST:
            runs = f"the baseline's {len(before)} runs"
            return f"; at step {stretch[0]} it first leaves the range of {runs}"
    return ""


def _beyond(value: float, stored: Sequence[float], *, lower: bool) -> bool:
    return value < min(stored) if lower else value > max(stored)
