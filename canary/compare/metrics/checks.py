"""The gates of `metrics:` as checks: one family with one error budget. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from canary.compare.checks import METRICS
from canary.compare.metrics.judging import Pending, judged
from canary.compare.metrics.samples import Samples, samples_of
from canary.compare.metrics.steps import by_step
from canary.compare.report import Check
from canary.config.metric_gates import MetricGate
from canary.record.types import RunRecord


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
        if not isinstance(samples, Samples):
            found[name] = samples
        elif gate.statistic == "steps" and gate.needs_baseline:
            found[name] = by_step(samples, gate.percent)
        else:
            found[name] = judged(samples)
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
