"""Compares the metrics that trainers log (rewards, margins, KL, entropy): means over the steps."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from canary.compare.checks import CHECKS, check_of
from canary.compare.report import Check, CheckStatus
from canary.compare.thresholds import Thresholds
from canary.record.metric_names import QUANTITIES, Quantity
from canary.record.types import RunRecord

KL_FLOOR = 0.01
"""A smaller KL is never a blow-up."""
SUSPICIOUS = 2.0
"""A rise of reward or margin above this many times the allowed drop is a warning."""

Records = Sequence[RunRecord]


def metric_checks(current: Records, baseline: Records, thresholds: Thresholds) -> list[Check]:
    """Return a check for each quantity that both sides log, in the order of `Thresholds`."""
    limited = {quantity.limit: quantity for quantity in QUANTITIES.values() if quantity.limit}
    found = []
    for key in Thresholds.model_fields:
        if key in limited:
            limit = float(getattr(thresholds, key))
            judge = _rise if limited[key].worse == "higher" else _drop
            found.append(judge(limited[key], current, baseline, limit))
    return [check for check in found if check is not None]


def _mean(records: Records, name: str, part: str = "mean") -> float | None:
    """Return the mean over the records where `part` of the metric's distribution is finite."""
    logged = [float(getattr(record.rl[name], part)) for record in records if name in record.rl]
    values = [value for value in logged if math.isfinite(value)]
    return statistics.fmean(values) if values else None


def _means(
    quantity: Quantity, current: Records, baseline: Records
) -> tuple[str, float, float] | Check | None:
    """Return (metric name, baseline mean, current mean); None if a side does not log it.

    Instead a failed check if the current mean is not finite, or a skipped one if names differ."""
    broken = _not_finite(quantity, current)
    if broken is not None:
        return broken
    before, after = (
        {name: mean for name in quantity.names if (mean := _mean(side, name)) is not None}
        for side in (baseline, current)
    )
    for name in before:
        if name in after:
            return name, before[name], after[name]
    if not before or not after:
        return None
    was, now = next(iter(before)), next(iter(after))
    words = f"the baseline logs {was}, the current side logs {now}: the scales may differ"
    return check_of(quantity.name, "skip", words)


def _not_finite(quantity: Quantity, current: Records) -> Check | None:
    """Return a failed check if the mean of a recorded metric is NaN or infinite."""
    bad = [
        metric
        for record in current
        for metric in quantity.names
        if metric in record.rl
        and record.rl[metric].count
        and not math.isfinite(record.rl[metric].mean)
    ]
    if not bad:
        return None
    words = f"mean {bad[0]} is not finite"
    return replace(check_of(quantity.name, "fail", words), delta=float(len(bad)))


def _rise(quantity: Quantity, current: Records, baseline: Records, limit: float) -> Check | None:
    """Fail if the mean rises to more than `limit` times the baseline's."""
    means = _means(quantity, current, baseline)
    if not isinstance(means, tuple):
        return means
    _, before, after = means
    failed = after / max(before, KL_FLOOR) > limit
    words = f"{CHECKS[quantity.name].title} {before:.3g} -> {after:.3g}"
    words += ": blow-up" if failed else ""
    return replace(
        check_of(quantity.name, "fail" if failed else "pass", words),
        baseline=before,
        current=after,
        unit=quantity.unit,
        delta=after - before,
        delta_pct=100 * (after / before - 1) if before else None,
        threshold=limit,
        scale="x",
    )


def _drop(quantity: Quantity, current: Records, baseline: Records, limit: float) -> Check | None:
    """Fail if the mean drops by more than `limit`, in percent or baseline standard deviations."""
    means = _means(quantity, current, baseline)
    if not isinstance(means, tuple):
        return means
    name, scale = quantity.name, "std" if quantity.limit.endswith("_std") else "%"
    metric, before, after = means
    unit = _mean(baseline, metric, "std") if scale == "std" else abs(before) / 100
    if not unit or unit < 1e-9:
        return check_of(name, "skip", f"the baseline's {name} does not vary")
    drop = (before - after) / unit
    status: CheckStatus = "pass"
    message = f"{CHECKS[name].title} {before:.4g} -> {after:.4g}"
    if drop > limit:
        status, message = "fail", f"{message}, a drop of {drop:.3g} {scale}: collapse"
    elif quantity.too_good and -drop > SUSPICIOUS * limit:
        status = "warn"
        message += f", a rise of {-drop:.3g} {scale}: suspiciously good; check for leaks or hacking"
    return replace(
        check_of(name, status, message),
        baseline=before,
        current=after,
        delta=after - before,
        delta_pct=100 * (after - before) / abs(before) if before else None,
        threshold=limit,
        scale=scale,
    )
