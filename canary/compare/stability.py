"""Check whether training still works: trends over the steps, and metrics that trainers log."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from canary.compare.checks import CHECKS, check_of
from canary.compare.exact.inputs_stages import is_rollout
from canary.compare.report import Check, CheckStatus
from canary.compare.thresholds import Thresholds
from canary.record.end_loss import TAIL_SHARE, finite, tail_mean
from canary.record.jsonio import shown
from canary.record.metric_names import QUANTITIES, Quantity
from canary.record.summary import untimed_steps
from canary.record.types import RunRecord

MIN_LOSSES = 20
USUAL_RISE = 1.1
"""A rise up to this many times the baseline's rise is not a new divergence."""


def stability_checks(
    current: Sequence[RunRecord], baseline: Sequence[RunRecord], thresholds: Thresholds
) -> list[Check]:
    """Return all checks of stability; the worst current record decides."""
    found = [
        _steps_trained(current, baseline, thresholds),
        _bad_steps("nan_steps", current, baseline, thresholds.max_nan_steps),
        _bad_steps("inf_steps", current, baseline, thresholds.max_inf_steps),
        _divergence(current, baseline, thresholds),
        _final_loss(current, baseline, thresholds),
        _gradient_explosion(current, baseline, thresholds),
    ]
    return found + metric_checks(current, baseline, thresholds)


def _fewest_steps(records: Sequence[RunRecord]) -> int | None:
    """Return the steps of the shortest launch; None without one."""
    counts = [
        launch.steps
        for record in records
        for launch in record.launches
        if launch.status == "completed"
    ]
    return min(counts, default=None)


def _steps_trained(
    current: Sequence[RunRecord], baseline: Sequence[RunRecord], thresholds: Thresholds
) -> Check:
    """Fail if a training that ended without an error lost many of the baseline's steps."""
    name, limit = "steps_trained", thresholds.max_steps_lost_pct
    before, after = _fewest_steps(baseline), _fewest_steps(current)
    if not before or after is None:
        return check_of(name, "skip", "no launches to compare")
    lost = 100 * (1 - after / before)
    words = f"{CHECKS[name].title} {before} -> {after}"
    status: CheckStatus = "fail" if lost > limit else "warn" if lost > 0 else "pass"
    if lost > 0:
        words += ": the training ended earlier" + (f", limit {limit:g}%" if lost > limit else "")
    return replace(
        check_of(name, status, words),
        baseline=before,
        current=after,
        unit="steps",
        delta=float(after - before),
        delta_pct=-lost,
        threshold=-limit,
    )


BadSteps = Literal["nan_steps", "inf_steps"]


def bad_steps(record: RunRecord, name: BadSteps) -> int | None:
    """Return how many steps had a NaN (or infinite) loss; None if no losses were recorded."""
    count: int = getattr(record.stability, name)
    return count if count or record.stability.loss_values else None


def _bad_steps(
    name: BadSteps, current: Sequence[RunRecord], baseline: Sequence[RunRecord], limit: int
) -> Check:
    if all(bad_steps(record, name) is None for record in current):
        return check_of(name, "skip", "no losses were recorded")
    worst = max(current, key=lambda record: getattr(record.stability, name))
    count = int(getattr(worst.stability, name))
    counts = [bad_steps(record, name) for record in baseline]
    before = max((known for known in counts if known is not None), default=None)
    kind, steps = "a NaN", worst.stability.nan_at
    if name == "inf_steps":
        kind, steps = "an infinite", worst.stability.inf_at
    first = f", first at step {steps[0]}" if steps else ""
    words = f"{count} step{'' if count == 1 else 's'} with {kind} loss{first}"
    return replace(
        check_of(name, "fail" if count > limit else "pass", words),
        baseline=before,
        current=count,
        unit="steps",
        delta=float(count - (before or 0)),
        threshold=float(limit),
        scale="steps",
    )


def _rises(records: Sequence[RunRecord]) -> list[float]:
    """Return last tenth / first tenth of each record's losses, if they do not cancel to zero."""
    rises = []
    for record in records:
        losses = record.stability.loss_values
        kept = finite(losses)
        if losses and not math.isfinite(losses[-1]):
            rises.append(math.inf)
        elif len(kept) >= MIN_LOSSES and not is_rollout(record):
            tenth = max(1, len(kept) // TAIL_SHARE)
            start, end = statistics.fmean(kept[:tenth]), statistics.fmean(kept[-tenth:])
            if start > 1e-3:
                rises.append(end / start)
    return rises


def _divergence(
    current: Sequence[RunRecord], baseline: Sequence[RunRecord], thresholds: Thresholds
) -> Check:
    """Fail if the loss rises from the first tenth to the last, and more than on the baseline."""
    rises, usual = _rises(current), max(_rises(baseline), default=0.0)
    if not rises:
        words = f"needs at least {MIN_LOSSES} losses, and a first tenth above zero"
        return check_of("loss_divergence", "skip", words)
    rise = max(rises)
    known = usual if 0 < usual < math.inf else None
    over = rise > thresholds.max_loss_rise
    failed = over and (math.isinf(rise) or rise > USUAL_RISE * usual)
    words = f"loss of the last tenth is {rise:.3g} times the first tenth"
    if math.isinf(rise):
        words = "the loss diverged: the last loss is not finite"
    elif failed:
        words = f"the loss diverged: {words}, limit {thresholds.max_loss_rise:g}"
    elif over:
        words += f", limit {thresholds.max_loss_rise:g}, as on the baseline"
    return replace(
        check_of("loss_divergence", "fail" if failed else "warn" if over else "pass", words),
        baseline=known,
        current=rise if math.isfinite(rise) else _first_broken(current),
        unit="x",
        delta=rise - (known or 1.0),
        delta_pct=100 * (rise / known - 1) if known and math.isfinite(rise) else None,
        threshold=thresholds.max_loss_rise,
        scale="x",
    )


def _final_loss(
    current: Sequence[RunRecord], baseline: Sequence[RunRecord], thresholds: Thresholds
) -> Check:
    name, words = "final_loss", CHECKS["final_loss"].title
    if any(is_rollout(record) for record in current):
        return check_of(name, "skip", "a policy loss is about zero by design")
    after = _worst([tail_mean(r.stability.loss_values) for r in current])
    before = _middle([tail_mean(r.stability.loss_values) for r in baseline])
    broken = _first_broken(current)
    if broken is not None and before is not None:
        message = f"{words} {before:.4g} -> {shown(broken)}: not finite at the end"
        return replace(
            check_of(name, "fail", message),
            baseline=before,
            current=broken,
            delta=math.inf,
            threshold=thresholds.max_final_loss_increase_pct,
        )
    if before is None or after is None or before <= 1e-6:
        return check_of(name, "skip", "no finite losses above zero to compare")
    change = 100 * (after / before - 1)
    status: CheckStatus = "pass"
    message = f"{words} {before:.4g} -> {after:.4g}"
    if change > thresholds.max_final_loss_increase_pct:
        status, message = "fail", f"{message}: the model learns worse"
    elif change < -thresholds.max_final_loss_drop_pct:
        status = "warn"
        message += ": suspiciously good; check for leaked labels or packed sequences"
    return replace(
        check_of(name, status, message),
        baseline=before,
        current=after,
        delta=after - before,
        delta_pct=change,
        threshold=thresholds.max_final_loss_increase_pct,
    )


def _ends_broken(record: RunRecord) -> str | None:
    """Return a run's last loss as text if it is not finite."""
    last = record.stability.loss_values[-1:]
    return None if all(map(math.isfinite, last)) else str(last[0])


def _first_broken(records: Sequence[RunRecord]) -> str | None:
    return next((found for r in records if (found := _ends_broken(r)) is not None), None)


def _worst(values: Sequence[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return max(found) if found else None


def _middle(values: Sequence[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return statistics.median(found) if found else None


def _largest_gradient(record: RunRecord) -> float | None:
    values = [v for v in record.stability.grad_norm_values if v is not None]
    if any(not math.isfinite(v) for v in values):
        return math.inf
    return max(values) if values else None


def _gradient_explosion(
    current: Sequence[RunRecord], baseline: Sequence[RunRecord], thresholds: Thresholds
) -> Check:
    name = "gradient_explosion"
    after = _worst([_largest_gradient(record) for record in current])
    before = _worst([_largest_gradient(record) for record in baseline])
    if after is None or not before or not math.isfinite(before):
        return check_of(name, "skip", "no gradient norms to compare")
    ratio = after / before
    failed = ratio > thresholds.max_grad_norm_ratio
    largest: float | str = after
    if not math.isfinite(after):
        norms = (norm for record in current for norm in record.stability.grad_norm_values)
        largest = next(str(norm) for norm in norms if norm is not None and not math.isfinite(norm))
    found = shown(largest) if isinstance(largest, str) else f"{largest:.4g}"
    words = f"{CHECKS[name].title} {before:.4g} -> {found}"
    words += f", limit {thresholds.max_grad_norm_ratio:g} times the baseline" if failed else ""
    return replace(
        check_of(name, "fail" if failed else "pass", words),
        baseline=before,
        current=largest,
        delta=after - before if math.isfinite(after) else math.inf,
        delta_pct=100 * (ratio - 1) if math.isfinite(ratio) else None,
        threshold=thresholds.max_grad_norm_ratio,
        scale="x",
    )


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
    words += _steps_left_out([*current, *baseline])
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


def _steps_left_out(records: Records) -> str:
    """Say which steps a mean leaves out: a gate's mean may have all."""
    counts = {untimed_steps(record) for record in records}
    count = counts.pop() if len(counts) == 1 else 0
    if count < 1:
        return ""
    each = " of each launch" if any(len(record.launches) > 1 for record in records) else ""
    steps = f"{count} steps" if count > 1 else "step"
    return f" without the first {steps}{each}"


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
    message += _steps_left_out([*current, *baseline])
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
