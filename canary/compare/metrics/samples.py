"""A gate's curve in each run and its number, or the check that says why there is none. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Unpack

from canary.compare.checks import metric_check
from canary.compare.metrics.statistic import Bounds, Reading, lone_spikes, reading, window
from canary.compare.report import Check, CheckStatus, Numbers, Records
from canary.config.metric_gates import MetricGate
from canary.errors import nearest
from canary.record.curves import ROW_METRICS, Curve, gated_metrics
from canary.record.jsonio import shown
from canary.record.types import RunRecord

OF_STATISTIC = {
    "mean": "mean {}",
    "median": "median {}",
    "last": "last {}",
    "max": "largest {}",
    "min": "smallest {}",
    "area": "area under {}",
    "count": "number of values of {}",
    "share_above": "share of {}",
    "at": "{}",
}


UNITS = {"step_time_s": "s", "max_memory_bytes": "bytes", "completion_length": "tokens"}
"""Units of the canary's own metrics."""
OF_ALL_STEPS = ("mean", "median", "max", "min", "area", "share_above")


def title(gate: MetricGate) -> str:
    """Return what a gate judges, in words."""
    words = OF_STATISTIC[gate.statistic].format(gate.name)
    if gate.above is not None:
        words += f" at or above {gate.above:g}"
    if gate.step is not None:
        words += f" at step {gate.step}"
    if gate.last is not None:
        words += f" over the last {gate.last} values"
    if gate.from_step is not None:
        words += f" from step {gate.from_step}"
    if gate.to_step is not None:
        words += f" to step {gate.to_step}"
    whole = (gate.last, gate.from_step, gate.to_step) == (None,) * 3
    if whole and gate.statistic in OF_ALL_STEPS:
        words += " over all steps"
    return words


def unit_of(gate: MetricGate, metric: str) -> str:
    """Return the unit of a gate's number; empty if it is not known, or has none. `metric`: the
    canary's name for the gate's metric."""
    plain = gate.of_step is None and gate.statistic not in ("count", "share_above")
    return UNITS.get(metric, "") if plain else ""


@dataclass(frozen=True)
class Samples:
    """The numbers of both sides; the current side has at least one."""

    gate: MetricGate
    name: str
    """Of the check."""
    readings: tuple[Reading, ...]
    """Of the current runs."""
    current: tuple[float, ...]
    baseline: tuple[float, ...]
    metric: str = ""
    """The canary's name for the metric, if it has one."""

    @property
    def title(self) -> str:
        """What is judged, in words."""
        return title(self.gate)

    def check(self, status: CheckStatus, message: str, **numbers: Unpack[Numbers]) -> Check:
        """Return the gate's check."""
        numbers = Numbers(unit=self.unit) | numbers
        return metric_check(self.name, self.gate.name, status, message, **numbers)

    @property
    def unit(self) -> str:
        """The unit of the number that is judged."""
        return unit_of(self.gate, self.metric)

    def spikes(self, bounds: Bounds) -> list[int]:
        """Return the steps of lone values beyond the bounds, if nothing else is beyond them."""
        found: list[int] = []
        for one in self.readings:
            if one.value is None or not bounds.breaks(one.value):
                continue
            alone = lone_spikes(one.points, self.gate, bounds)
            if not alone:
                return []
            found += alone
        return found


def samples_of(gate: MetricGate, name: str, current: Records, baseline: Records) -> Samples | Check:
    """Return a gate's samples; a check if the gate cannot be judged or a value is not finite."""
    now, before = (
        [(record, curve_in(record, gate.name)) for record in side] for side in (current, baseline)
    )
    found = [(record, curve) for record, curve in now if curve is not None]
    stored = tuple(curve for _, curve in before if curve is not None)
    group = own_name(current[-1], gate.name)

    check = partial(metric_check, name, group)
    if len(found) < len(now):
        run = next(record.run_id for record, curve in now if curve is None)
        words = _missing(gate, run, current, baseline, bool(stored))
        # Whoever drops a gated metric does not get around its gate.
        dropped = bool(stored) and not _was_logged(current, gate.name)
        return check("fail" if dropped else "inconclusive", words)
    readings = tuple(reading(curve, gate) for _, curve in found)
    for (record, _), one in zip(found, readings, strict=True):
        if one.broken:
            words = f"{title(gate)} is {shown(one.broken)}: {one.problem} of run {record.run_id}"
            return check("fail", words, current=one.broken, delta=math.inf)
        if one.problem:
            return check("inconclusive", f"{title(gate)} of run {record.run_id}: {one.problem}")
    lacking = _too_short([curve for _, curve in found], stored) or next(
        filter(None, (_gaps(record, curve, stored, gate) for record, curve in found)), ""
    )
    if lacking:
        return check("inconclusive", f"{title(gate)}: {lacking}")
    usable = [value for curve in stored if (value := reading(curve, gate).value) is not None]
    if gate.needs_baseline and not usable:
        if not baseline:
            return check("skip", f"{title(gate)}: needs a baseline")
        why = "no run of the baseline has a usable value"
        if _was_logged(baseline, gate.name) and not stored:
            why = "the baseline's runs are older than this gate; runs from now on keep its curve"
        return check("inconclusive", f"{title(gate)}: {why}")
    return Samples(
        gate,
        name,
        readings,
        tuple(one.value for one in readings if one.value is not None),
        tuple(usable),
        group,
    )


def _missing(gate: MetricGate, run: str, current: Records, baseline: Records, stored: bool) -> str:
    """Say that a current run has no curve of the metric."""
    if _was_logged(current, gate.name):
        return (
            f"{gate.name}: run {run} logs it but keeps no curve, because its own config has no "
            "gate on it; train again with this config"
        )
    near = _nearest([*current, *baseline], gate.name)
    if stored:
        return f"{gate.name}: recorded on the baseline but not in run {run}{near}"
    return f"{gate.name}: no run has a metric of this name{near}"


def curve_in(record: RunRecord, name: str) -> Curve | None:
    """Return a record's curve of a metric, by the canary's name or the source's; None without a
    value."""
    found = (record.curves.get(key) for key in (name, own_name(record, name)))
    return next((curve for curve in found if curve is not None and curve.steps), None)


def own_name(record: RunRecord, name: str) -> str:
    """Return the canary's name for a metric, given any of its names."""
    names = record.source.names if record.source is not None else {}
    return next((own for own, theirs in names.items() if theirs == name), name)


def _was_logged(records: Records, name: str) -> bool:
    """Whether a run had the metric, although its record keeps no curve of it."""
    for record in records:
        names = {name, own_name(record, name)}
        # Metrics of rows stand in no list. An import, and a run with a gate on one, would have its
        # curve.
        kept = record.source is not None or names & set(gated_metrics(record.config))
        if names & record.rl.keys() or not (kept or names.isdisjoint(ROW_METRICS)):
            return True
    return False


def _nearest(records: Records, name: str) -> str:
    """Return the end of a sentence that names the most similar metric; empty without one."""
    known: dict[str, None] = {}
    for record in records:
        names = record.source.names if record.source is not None else {}
        for key in record.curves:
            known |= dict.fromkeys((key, *([names[key]] if key in names else [])))
    logged = sorted({metric for record in records for metric in record.rl})
    near = nearest(name, [*known, *logged, *ROW_METRICS])
    return f" (did you mean '{near}'?)" if near is not None and near != name else ""


def _gaps(record: RunRecord, curve: Curve, baseline: Sequence[Curve], gate: MetricGate) -> str:
    """Return why a current curve has too few values between its ends; empty if it has enough.

    Some metrics are not written at fixed steps. So a curve that lacks a step has gaps only if it
    also has fewer values than each run of the baseline."""
    if not baseline or gate.statistic in ("at", "count"):
        return ""
    windows = [{step for step, _ in window(one, gate)} for one in baseline]
    lacks = sorted(set.intersection(*windows).difference(curve.steps))
    last = max(one.steps[-1] for one in baseline)
    first = min((min(steps) for steps in windows if steps), default=0)
    count = sum(first <= step <= last for step in curve.steps)
    if not lacks or count >= min(map(len, windows)):
        return ""
    few = "a value" if len(lacks) == 1 else f"{len(lacks)} values"
    where = f"at step {lacks[0]}" if len(lacks) == 1 else f"from step {lacks[0]} on"
    return (
        f"run {record.run_id} lacks {few} {where} that every run of the baseline has, so the rest "
        "is not judged"
    )


def _too_short(current: Sequence[Curve], baseline: Sequence[Curve]) -> str:
    """Return why a current curve ends too early to compare; empty if it does not."""
    least = min((curve.steps[-1] for curve in baseline), default=None)
    ends = min(curve.steps[-1] for curve in current)
    if least is None or ends >= least:
        return ""
    return f"the current curve ends at step {ends}, those of the baseline at {least} or later"
